import json
import logging

log = logging.getLogger(__name__)


def save(step, state, folder):
    path = f"{folder}/step-{step:05}.json"
    try:
        with open(path, "w") as file:
            json.dump({"step": step, **state}, file)
    except OSError as error:
        log.warning("could not save checkpoint of step %d: %s", step, error)
        return
    log.info("saved %s", path)
