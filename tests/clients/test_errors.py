"""What vendors' libraries raise when the gateway refuses: each in its own class, and the session goes on afterwards."""

import anthropic
import litellm
import openai
import pytest

from t1.types import StopReason

# litellm's own, on its first call.
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier:UserWarning")
HI = [{"role": "user", "content": "hi"}]
LONG = [{"role": "user", "content": "word " * 3000}]


def openai_client(ground, **options):
    return openai.AsyncOpenAI(**{"base_url": ground.url, "api_key": ground.key, "max_retries": 0, **options})


def anthropic_client(ground, **options):
    url = ground.url.removesuffix("/v1")
    return anthropic.AsyncAnthropic(**{"base_url": url, "api_key": ground.key, "max_retries": 0, **options})


async def test_openai_raises_its_own_errors(open_ground, engine):
    async with open_ground(engine, max_tokens=4) as ground, openai_client(ground) as client:
        create = client.chat.completions.create
        with pytest.raises(openai.BadRequestError) as caught:
            await create(model="policy", messages=HI, n=2)
        assert caught.value.param == "n"
        with pytest.raises(openai.BadRequestError) as caught:
            await create(model="policy", messages=LONG)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model="policy", input="hi", previous_response_id="resp_1")
        assert caught.value.param == "previous_response_id"
        with pytest.raises(openai.NotFoundError):
            await create(model="other", messages=HI)
        async with openai_client(ground, api_key="t1-other") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.chat.completions.create(model="policy", messages=HI)
        assert (await create(model="policy", messages=HI)).usage.completion_tokens <= 4
        trajectories, report = await ground.finish(StopReason.TURN_LIMIT)
        assert (len(trajectories), report.findings) == (1, ())
        with pytest.raises(openai.APIStatusError) as caught:
            await create(model="policy", messages=HI)
        assert caught.value.status_code == 410


async def test_anthropic_raises_its_own_errors(open_ground, engine):
    async with open_ground(engine, max_tokens=4) as ground, anthropic_client(ground) as client:
        create = client.messages.create
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await create(model="policy", messages=LONG, max_tokens=9)
        with pytest.raises(anthropic.NotFoundError):
            await create(model="other", messages=HI, max_tokens=9)
        async with anthropic_client(ground, api_key="t1-other") as stranger:
            with pytest.raises(anthropic.AuthenticationError):
                await stranger.messages.create(model="policy", messages=HI, max_tokens=9)
        count = await client.messages.count_tokens(model="policy", messages=HI)
        reply = await create(model="policy", messages=HI, max_tokens=9)
        assert reply.usage.input_tokens + reply.usage.cache_read_input_tokens == count.input_tokens
        _, report = await ground.finish(StopReason.TURN_LIMIT)
        assert report.findings == ()
        with pytest.raises(anthropic.APIStatusError) as caught:
            await create(model="policy", messages=HI, max_tokens=9)
        assert caught.value.status_code == 410


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
async def test_litellm_knows_a_context_that_is_too_short(open_ground, engine, vendor):
    """Agents that summarise when the context ends go by this class."""
    async with open_ground(engine, max_tokens=4) as ground:
        url = ground.url if vendor == "openai" else ground.url.removesuffix("/v1")
        where = {"model": f"{vendor}/policy", "api_base": url, "api_key": ground.key, "max_retries": 0}
        with pytest.raises(litellm.ContextWindowExceededError):
            await litellm.acompletion(**where, messages=LONG)


async def test_an_engine_that_is_down_is_a_server_error(open_ground, engine):
    await engine.aclose()
    async with open_ground(engine) as ground, openai_client(ground) as client, anthropic_client(ground) as other:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="policy", messages=HI)
        with pytest.raises(anthropic.InternalServerError):
            await other.messages.create(model="policy", messages=HI, max_tokens=9)
