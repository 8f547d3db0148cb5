import logging

try:
    raise ValueError("bad label 7")  # here
except ValueError as error:
    logging.exception("training failed")
    raise SystemExit(1) from error
