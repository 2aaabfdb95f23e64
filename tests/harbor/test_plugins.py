"""Harbor's own machinery on our plug-ins, for real. Runs under Python ≥ 3.12 with harbor: `make test-harbor`."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

pytest.importorskip("harbor", reason="HARBOR IS NOT TESTED HERE: it needs Python 3.12, run make test-harbor")
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from harbor.agents.base import BaseAgent
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.paths import TrialPaths
from harbor.trial.trial import Trial

from t1.errors import SandboxError, SandboxVanished
from t1.harbor.environment import BorrowedEnvironment, T1Environment
from t1.harbor.link import BorrowedSandbox, lend
from t1.sandboxes import NamespaceProvider
from t1.tasks.shell_basics import generate

ENVIRONMENT = "t1.harbor.environment:T1Environment"
VERIFIER = "t1.harbor.verifier:T1Verifier"
pytestmark = pytest.mark.filterwarnings("ignore:Task.checksum will be deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> list[Path]:
    """A few generated tasks as directories."""
    folder = tmp_path_factory.mktemp("made") / "suite"
    asyncio.run(generate(folder, num_train=6, num_heldout=1, seed=3, provider=None))
    return sorted((folder / "train").iterdir())


async def trial(task: Path, folder: Path, agent: str, *, verifier: dict | None = None, **options):
    """The result of one trial."""
    config = TrialConfig.model_validate(
        {
            "task": {"path": str(task)},
            "trials_dir": str(folder),
            "agent": {"name": agent, "kwargs": options},
            "environment": {"import_path": ENVIRONMENT},
            "verifier": {"import_path": VERIFIER} if verifier is None else verifier,
        }
    )
    return await (await Trial.create(config)).run()


class Forger(BaseAgent):
    """Does no work, writes itself a reward, and leaves a process behind that writes it again and again."""

    @staticmethod
    def name() -> str:
        return "forger"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        forge = """chdir "/logs/verifier"; while (1) { open F, ">r"; print F 1; close F; rename "r", "reward.txt" }"""
        await environment.exec(f"nohup perl -e '{forge}' >/dev/null 2>&1 &")


async def test_the_oracle_solves_every_task_of_our_suite(suite, tmp_path):
    results = await asyncio.gather(*(trial(task, tmp_path, "oracle") for task in suite))
    assert [result.exception_info for result in results] == [None] * len(suite)
    rewards = [result.verifier_result.rewards for result in results]
    assert all(found["reward"] == 1.0 and found["passed"] == found["assertions"] > 0 for found in rewards), rewards


async def test_doing_nothing_earns_nothing(suite, tmp_path):
    result = await trial(suite[0], tmp_path, "nop")
    assert result.exception_info is None
    assert result.verifier_result.rewards["reward"] == 0
    assert result.verifier_result.rewards["passed"] == 0


async def test_a_dense_reward_counts_assertions_by_the_normalizer(suite, tmp_path):
    verifier = {"import_path": VERIFIER, "kwargs": {"normalizer": 8}}
    result = await trial(suite[0], tmp_path, "oracle", verifier=verifier)
    rewards = result.verifier_result.rewards
    assert rewards["reward"] == rewards["passed"] / 8


async def test_a_forged_reward_fools_nobody(suite, tmp_path):
    """Case V1, case F4: the forger's files and processes never reach the verifier."""
    result = await trial(suite[0], tmp_path, f"{__name__}:Forger")
    assert result.verifier_result.rewards["reward"] == 0


async def test_the_stock_verifier_is_fooled_by_the_same_forger(suite, tmp_path):
    """The control: without it the test above might pass for want of an attack."""
    result = await trial(suite[0], tmp_path, f"{__name__}:Forger", verifier={})
    assert result.verifier_result.rewards["reward"] == 1.0


async def test_the_verdict_lies_beside_harbors_own_files(suite, tmp_path):
    await trial(suite[0], tmp_path, "oracle")
    (verdict,) = tmp_path.rglob("verdict.json")
    assert '"passed"' in verdict.read_text()


@pytest.fixture
async def environment(suite, tmp_path):
    """A started environment outside any trial."""
    paths = TrialPaths(trial_dir=tmp_path / "trial")
    paths.mkdir()
    made = T1Environment(
        environment_dir=suite[0] / "environment",
        environment_name="t",
        session_id="s",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(),
        logger=logging.getLogger("test"),
    )
    await made.start(force_build=False)
    yield made
    await made.stop(delete=True)


async def test_commands_keep_their_directory_and_variables_to_themselves(environment):
    first = await environment.exec('cd /tmp; V=1; echo "$A" here', env={"A": "it's $HOME"})
    assert (first.return_code, first.stdout) == (0, "it's $HOME here\n")
    second = await environment.exec("pwd; echo [$V$A]; exit 3", cwd="/logs")
    assert (second.return_code, second.stdout) == (3, "/logs\n[]\n")


async def test_files_travel_both_ways_byte_for_byte(environment, tmp_path):
    content = bytes(range(256)) * 2000
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "it's a file").write_bytes(content)
    (source / "deep" / "it's a file").chmod(0o750)
    (source / "link").symlink_to("deep/it's a file")
    await environment.upload_dir(source, "/solution/there")
    await environment.download_dir("/solution/there", tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "it's a file").read_bytes() == content
    assert (tmp_path / "back" / "link").is_symlink()
    await environment.upload_file(source / "deep" / "it's a file", "/tests/new/one")
    assert (await environment.exec("stat -c %a /tests/new/one")).stdout == "750\n"
    await environment.download_file("/tests/new/one", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == content


async def test_a_missing_file_is_an_error_not_an_empty_file(environment, tmp_path):
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        await environment.download_file("/nowhere", tmp_path / "x")
    with pytest.raises(SandboxError):
        await environment.download_dir("/nowhere", tmp_path / "x")


async def test_what_an_agent_packed_cannot_leave_the_target(environment, tmp_path):
    await environment.exec("mkdir /tmp/d && ln -s /etc /tmp/d/out && mkfifo /tmp/d/pipe && echo x > /tmp/d/x")
    with pytest.raises(Exception, match=r"(?i)link|absolute|outside"):
        await environment.download_dir("/tmp/d", tmp_path / "back")
    await environment.exec("rm /tmp/d/out")
    await environment.download_dir("/tmp/d", tmp_path / "back")
    assert sorted(entry.name for entry in (tmp_path / "back").iterdir()) == ["x"]


async def test_a_command_over_its_bound_is_a_timeout(environment):
    with pytest.raises(TimeoutError, match="no end after 1 s"):
        await environment.exec("sleep 30", timeout_sec=1)
    assert (await environment.exec("echo alive")).stdout == "alive\n"


async def test_other_users_are_refused_by_name(environment):
    refused = await environment.exec("id", user="agent")
    assert refused.return_code == 126
    assert "'agent'" in refused.stdout


@pytest.fixture
async def lent(suite, tmp_path):
    """An environment over a sandbox that someone else owns, and that owner's sandbox."""
    from t1.tasks import read_task

    provider = NamespaceProvider()
    sandbox = await provider.open(read_task(suite[0]))
    paths = TrialPaths(trial_dir=tmp_path / "trial")
    paths.mkdir()
    async with lend(sandbox, tmp_path / "sock"):
        made = BorrowedEnvironment(
            tmp_path / "sock",
            environment_dir=suite[0] / "environment",
            environment_name="t",
            session_id="s",
            trial_paths=paths,
            task_env_config=EnvironmentConfig(),
        )
        await made.start(force_build=False)
        yield made, sandbox
        await made.stop(delete=True)
    await provider.close()


async def test_a_borrowed_sandbox_is_the_owners(lent):
    environment, sandbox = lent
    assert (await environment.exec("echo né > /tmp/x; cat /tmp/x")).stdout == "né\n"
    assert await sandbox.read("/tmp/x", max_bytes=10) == "né\n".encode()
    await environment.stop(delete=True)
    assert (await sandbox.run("cat /tmp/x", timeout_s=5)).output == "né\n"


async def test_a_borrower_learns_that_the_sandbox_is_gone(lent):
    """Case F5: an infrastructure failure, not a score."""
    environment, sandbox = lent
    await sandbox.close()
    with pytest.raises(SandboxVanished):
        await environment.exec("true")


async def test_a_borrower_whose_owner_is_gone_does_not_wait(tmp_path):
    with pytest.raises(SandboxVanished, match="does not answer"):
        await BorrowedSandbox(tmp_path / "nobody").run("true", timeout_s=5)


async def test_a_cut_call_does_not_leave_its_answer_to_the_next(lent):
    environment, _ = lent
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(environment.exec("sleep 0.5; echo late"), timeout=0.1)
    assert (await environment.exec("echo next")).stdout == "next\n"
