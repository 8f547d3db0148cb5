"""Start Azure's inference server at a socket that is already open.

Owns: its settings, which are those of `azmlinfsrv` of the installed version but for the address.
Leaves: loading the scoring script to scoring_app.py.
Always: it serves at the socket whose number is its argument, and nowhere else, as a service that
systemd starts does, whose socket's name stays when it ends; it begins when the
supervisor says so on its standard input, and ends when that one has ended before.

Source: azureml-inference-server-http, whose own program binds all addresses of the machine.
"""

import os
import sys

LACKS_SERVER = (
    "the environment lacks azureml-inference-server-http ({}); add it to the environment's packages"
)
LISTEN_FD = 3


def main() -> None:
    number = int(sys.argv[1])
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    import scoring_error

    try:
        import azureml_inference_server_http as package
    except ImportError as error:
        scoring_error.write(LACKS_SERVER.format(error))
        sys.exit(3)
    try:
        from gunicorn.app.wsgiapp import WSGIApplication

        log_options = read_log_options(os.path.dirname(package.__file__))
        # The server, not the script, before processes are forked: the next one is there at once.
        import azureml_inference_server_http.server.aml_blueprint
    except (Exception, SystemExit) as error:
        scoring_error.write(scoring_error.describe_start(error))
        sys.exit(3)
    version = getattr(package, "__version__", "")
    if os.environ.get("SERVER_VERSION_LOG_RESPONSE_ENABLED", "true").lower() == "true":
        os.environ.setdefault("HTTP_X_MS_SERVER_VERSION", f"azmlinfsrv/{version}")
    # The supervisor says when it is this process that serves; if it has ended, nobody does.
    if not os.read(0, 1):
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    print(f"Azure ML inferencing HTTP server v{version}", flush=True)
    hand_over(number)
    words = ["-w", os.environ["WORKER_COUNT"]]
    words += ["--timeout", os.environ.get("WORKER_TIMEOUT") or "300"]
    words += log_options
    if os.environ.get("WORKER_PRELOAD", "false").lower() == "true":
        words.append("--preload")
    if has_control_socket():
        words.append("--no-control-socket")
    sys.argv = [sys.argv[0], *words, "scoring_app:app"]
    WSGIApplication("%(prog)s [OPTIONS] [APP_MODULE]").run()


def hand_over(number: int) -> None:
    """Pass the socket on as systemd does. Source: sd_listen_fds(3)."""
    if number != LISTEN_FD:
        os.dup2(number, LISTEN_FD)
        os.close(number)
    os.set_inheritable(LISTEN_FD, True)
    os.environ.update({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})


def read_log_options(package: str) -> "list[str]":
    """The options of gunicorn for the logs of the server in the folder `package`."""
    try:
        from azureml_inference_server_http.log_config import load_logging_config
    except ImportError:  # before 0.8
        return ["--log-config", os.path.join(package, "logging.conf")]
    load_logging_config(package)
    return ["--access-logfile", "-", "--error-logfile", "/dev/null"]


def has_control_socket() -> bool:
    """Whether this gunicorn would listen at a socket that all instances of a user share."""
    from gunicorn import config

    return any(setting.name == "control_socket_disable" for setting in config.KNOWN_SETTINGS)


if __name__ == "__main__":
    main()
