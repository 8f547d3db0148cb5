"""Send a message by e-mail.

Owns: the e-mail, the conversation with the mail server.
Leaves: its text to content.py, the mail server to settings.py.
Always: every address and text passes through `EmailMessage`, which refuses ends of lines in a head.
"""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, localtime

from torchyard.jobs.messages.errors import NeverSent, NotSent
from torchyard.jobs.messages.settings import STARTTLS, TLS, MessageSettings, SmtpSettings

LIMIT_S = 10.0
_PERMANENT = 500


def make(address: str, subject: str, text: str, message_id: str, sender: str) -> EmailMessage:
    """
    Raises:
        ValueError: something would end a line of the head.
    """
    email = EmailMessage(policy=SMTP)
    email["From"] = sender
    email["To"] = address
    email["Subject"] = subject
    email["Date"] = format_datetime(localtime())
    email["Message-ID"] = f"<{message_id}@{sender.rpartition('@')[2]}>"
    # Mail servers then send no note of absence.
    email["Auto-Submitted"] = "auto-generated"
    email.set_content(text)
    return email


def send(email: EmailMessage, settings: MessageSettings) -> None:
    """
    Raises:
        NotSent: the mail server is unreachable, or refuses for now.
        NeverSent: it does not know the recipient.
    """
    smtp = settings.smtp
    if smtp is None:
        raise NotSent("the server has no mail server: see `yard-server --messages`")
    try:
        with _connected(smtp, settings.ca_cert) as server:
            if smtp.user:
                server.login(smtp.user, smtp.password())
            server.send_message(email, from_addr=smtp.sender, to_addrs=[email["To"]])
    except smtplib.SMTPRecipientsRefused as error:
        code, answer = next(iter(error.recipients.values()))
        text = f"the mail server answered {code} {answer.decode(errors='replace')[:200]}"
        raise (NeverSent if code >= _PERMANENT else NotSent)(text) from error
    except (OSError, smtplib.SMTPException) as error:
        raise NotSent(f"mail server `{smtp.host}`: {error}"[:300]) from error


def _connected(smtp: SmtpSettings, ca_cert: str) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if ca_cert:
        context.load_verify_locations(ca_cert)
    if smtp.tls == TLS:
        return smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=LIMIT_S, context=context)
    server = smtplib.SMTP(smtp.host, smtp.port, timeout=LIMIT_S)
    if smtp.tls == STARTTLS:
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server
