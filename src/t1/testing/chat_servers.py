"""A public fake of an endpoint that speaks OpenAI's chat completions: it answers by a function of the request.

Boundary: HTTP on loopback, one JSON object a request; what a client makes of it is the client's affair.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any

Request = dict[str, Any]
Answer = Callable[[Request], int | str]


class ChatServer:
    """Answers each request with a status, or with the text of a completion. Use it as a context."""

    def __init__(self, answer: Answer | list[int | str], *, prompt_tokens: int = 1000, completion_tokens: int = 500):
        """`answer`: what to say to a request, or what to say to one request after the other."""
        self.requests: list[Request] = []
        """What was asked, in order."""
        script = list(answer) if isinstance(answer, list) else None
        say: Answer = (lambda request: script.pop(0)) if script is not None else answer  # type: ignore[assignment]
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        outer, lock = self, Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.requests.append(request)
                    said = say(request)
                body = json.dumps({"choices": [{"message": {"content": said}}], "usage": usage}).encode()
                self.send_response(said if isinstance(said, int) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._thread.join(5)
        self._http.server_close()

    def __enter__(self) -> ChatServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
