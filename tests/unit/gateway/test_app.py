"""The server: routes, keys, bounds, what becomes of clients that wait or go away."""

import asyncio
import contextlib
import json

import httpx
import pytest

from t1.gateway.app import ServerConfig, app, serve
from t1.gateway.conversation import GatewayError
from t1.testing.gateways import ScriptedCompleter

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}
BODIES = {
    "chat/completions": CHAT,
    "messages": {**CHAT, "max_tokens": 9},
    "responses": {"model": "policy", "input": "hi"},
}
PATHS = pytest.mark.parametrize("path", BODIES)
DEFAULT = ServerConfig()
BEARER = {"authorization": "Bearer key1"}


@contextlib.asynccontextmanager
async def client(completer, config=DEFAULT, **options):
    """A client without a network between it and the application."""
    transport = httpx.ASGITransport(app(completer, config))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=BEARER, **options) as http:
        yield http


def kind(response):
    """The error's kind in either vendor's shape."""
    body = response.json()
    assert ("type" in body) == ("/messages" in str(response.url))
    return body["error"].get("code") or body["error"]["type"]


@PATHS
@pytest.mark.parametrize("prefix", ["/s/s1/v1/", "/v1/"])
@pytest.mark.parametrize(
    "headers", [BEARER, {"authorization": "bearer key1"}, {"x-api-key": "key1", "authorization": ""}]
)
async def test_path_and_key_name_the_session(path, prefix, headers):
    completer = ScriptedCompleter()
    async with client(completer) as http:
        response = await http.post(prefix + path, json=BODIES[path], headers=headers)
    assert response.status_code == 200, response.text
    assert "ok" in response.text
    assert [session for session, _ in completer.asked] == ["s1"]


async def test_a_session_may_be_named_like_a_rollout():
    completer = ScriptedCompleter(sessions={"task/0/1#2": "key1"})
    async with client(completer) as http:
        assert (await http.post("/s/task%2F0%2F1%232/v1/chat/completions", json=CHAT)).status_code == 200


@PATHS
async def test_a_wrong_key_is_refused_before_the_body_is_read(path):
    async def body():
        yield b"{"
        raise AssertionError("the body was read")

    async with client(ScriptedCompleter()) as http:
        for headers in ({"authorization": "Bearer other"}, {"authorization": ""}, {"authorization": "Basic key1"}):
            response = await http.post(f"/s/s1/v1/{path}", content=body(), headers=headers)
            assert response.status_code == 401
            assert kind(response) == "authentication_error"


@PATHS
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (GatewayError(410, "session_closed", "closed meanwhile"), 410),
        (GatewayError(503, "engine_unavailable", "down"), 503),
        (GatewayError(400, "context_length_exceeded", "9 > 8", "messages"), 400),
        (RuntimeError("a bug with the policy's secret in it"), 500),
    ],
    ids=["410", "503", "400", "500"],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_an_error_before_the_stream_has_a_real_status(path, error, status, streaming):
    async with client(ScriptedCompleter([error])) as http:
        response = await http.post(f"/v1/{path}", json={**BODIES[path], "stream": streaming})
    assert response.status_code == status
    assert "error" in response.json()
    assert "secret" not in response.text


async def test_bad_bodies_change_nothing():
    completer = ScriptedCompleter()
    async with client(completer) as http:
        for path in BODIES:
            assert (await http.post(f"/v1/{path}", content=b"{")).status_code == 400
            assert (await http.post(f"/v1/{path}", json={**BODIES[path], "model": "other"})).status_code == 404
        assert (await http.post("/v1/chat/completions", json={**CHAT, "n": 2})).json()["error"]["param"] == "n"
    assert completer.asked == []


@PATHS
async def test_a_closed_session_is_gone(path):
    completer = ScriptedCompleter()
    completer.closed.add("s1")
    async with client(completer) as http:
        assert (await http.post(f"/v1/{path}", json=BODIES[path])).status_code == 410


async def test_a_body_over_the_limit_is_read_but_not_kept():
    sent = 0

    async def body():
        nonlocal sent
        for _ in range(100):
            sent += 1 << 20
            yield bytes(1 << 20)

    async with client(ScriptedCompleter(), ServerConfig(max_body_bytes=10 << 20)) as http:
        response = await http.post("/v1/messages", content=body())
    assert response.status_code == 413
    assert kind(response) == "request_too_large"
    assert sent == 100 << 20


async def test_a_body_without_end_is_cut_off():
    async def body():
        while True:
            yield bytes(1 << 10)

    async with client(ScriptedCompleter(), ServerConfig(max_body_bytes=1 << 12)) as http:
        assert (await http.post("/v1/messages", content=body())).status_code == 413


async def test_a_body_that_does_not_come_is_given_up():
    async def body():
        yield b"{"
        await asyncio.sleep(60)

    async with client(ScriptedCompleter(), ServerConfig(read_timeout_s=0.01)) as http:
        assert (await http.post("/v1/messages", content=body())).status_code == 408


async def test_a_reply_that_does_not_come_is_given_up():
    completer = ScriptedCompleter(held=True)
    async with client(completer, ServerConfig(reply_timeout_s=0.01)) as http:
        assert (await http.post("/v1/messages", json=BODIES["messages"])).status_code == 504
    assert completer.cancelled.is_set()


async def test_models_probes_and_other_routes():
    async with client(ScriptedCompleter()) as http:
        assert (await http.head("/")).status_code == 200
        assert (await http.head("/s/s1")).status_code == 200
        assert (await http.get("/health")).json()["status"] == "ok"
        assert [model["id"] for model in (await http.get("/v1/models")).json()["data"]] == ["policy"]
        assert (await http.get("/s/s1/v1/models/policy")).json()["id"] == "policy"
        assert (await http.get("/v1/models/other")).status_code == 404
        assert (await http.get("/v1/models", headers={"authorization": ""})).status_code == 401
        assert kind(await http.post("/v1/embeddings", json={})) == "not_found_error"
        assert (await http.get("/v1/messages")).status_code == 405
        assert (await http.get("/s/s1/v1/assistants")).status_code == 404
        assert (await http.post("/v1/messages/count_tokens", json=CHAT)).json() == {"input_tokens": 1}


async def test_the_idempotency_key_reaches_the_completer():
    completer = ScriptedCompleter()
    async with client(completer) as http:
        await http.post("/v1/chat/completions", json=CHAT, headers={"idempotency-key": "again"})
    assert completer.asked[0][1].idempotency_key == "again"


@contextlib.asynccontextmanager
async def stream(completer, path):
    """A stream over a real socket that has shown a sign of life, and the text of it."""
    async with (
        await serve(completer, config=ServerConfig(keep_alive_s=0.01)) as served,
        httpx.AsyncClient(base_url=served.base_url, headers=BEARER) as http,
        http.stream("POST", f"/v1/{path}", json={**BODIES[path], "stream": True}) as response,
    ):
        chunks = response.aiter_text()
        yield response, await anext(chunks), chunks


@PATHS
async def test_a_stream_that_waits_shows_signs_of_life(path):
    completer = ScriptedCompleter(held=True)
    async with stream(completer, path) as (response, first, rest):
        completer.release()
        told = "".join([chunk async for chunk in rest])
    assert response.headers["content-type"].startswith("text/event-stream")
    assert first.startswith("event: ping\n" if path == "messages" else ": keep-alive\n\n")
    assert '"ok"' in told


@PATHS
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (GatewayError(503, "engine_unavailable", "down"), "down"),
        (RuntimeError("a bug"), "the gateway failed; its log says where"),
    ],
    ids=["503", "500"],
)
async def test_an_error_in_the_middle_of_a_stream_is_an_event(path, error, told):
    completer = ScriptedCompleter([error], held=True)
    async with stream(completer, path) as (response, _, rest):
        completer.release()
        text = "".join([chunk async for chunk in rest])
    assert response.status_code == 200
    assert json.loads(text.strip().rpartition("data: ")[2])["error"]["message"] == told


@pytest.mark.parametrize("keep_alive_s", [0.01, 60], ids=["in the stream", "before it"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_goes_away_cancels_its_call(streaming, keep_alive_s):
    """Case T8, the server's half: nobody samples for a client that is gone."""
    completer = ScriptedCompleter(held=True)
    raw = json.dumps({**CHAT, "stream": streaming}).encode()
    async with await serve(completer, config=ServerConfig(keep_alive_s=keep_alive_s, shutdown_s=1)) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key1\r\ncontent-length: "
        writer.write(f"{head}{len(raw)}\r\n\r\n".encode() + raw)
        async with asyncio.timeout(5):
            await completer.pending.wait()
            writer.close()
            await completer.cancelled.wait()


async def test_closing_cancels_the_calls_that_do_not_end_and_frees_the_port():
    completer = ScriptedCompleter(held=True)
    served = await serve(completer, config=ServerConfig(shutdown_s=1))
    async with httpx.AsyncClient(base_url=served.base_url, headers=BEARER) as http:
        call = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT, timeout=10))
        async with asyncio.timeout(5):
            await completer.pending.wait()
        await served.aclose()
        with contextlib.suppress(httpx.HTTPError):
            await call
    assert completer.cancelled.is_set()
    await served.aclose()
    again = await serve(completer, port=served.port)
    await again.aclose()


async def test_a_port_that_is_taken_is_an_error():
    async with await serve(ScriptedCompleter()) as served:
        with pytest.raises(OSError, match="in use"):
            await serve(ScriptedCompleter(), port=served.port)
