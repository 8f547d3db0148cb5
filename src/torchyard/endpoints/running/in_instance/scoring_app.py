"""The inference server's application, with the error of a scoring script that can't be loaded.

Owns: noticing that it serves, naming what went wrong in the script.
Leaves: everything that is served to azureml-inference-server-http.
Always: what the server itself prints stays as it is.
"""

import importlib
import os

import abandoned_requests
import scoring_error

try:
    # The settings of its logs, again: gunicorn has made its own since they were read.
    from azureml_inference_server_http.server import config

    importlib.reload(config)
    from azureml_inference_server_http.server.entry import app
except SystemExit as error:
    scoring_error.write(scoring_error.describe(error))
    raise
except BaseException as error:
    scoring_error.write(scoring_error.describe(error))
    raise SystemExit(3) from error  # gunicorn's code for an app that can't be loaded

with open(os.path.join(os.environ["TORCHYARD_SERVING_STATE"], "ready"), "a") as ready:
    ready.write(".")
app = abandoned_requests.WithoutAbandoned(app)

__all__ = ["app"]
