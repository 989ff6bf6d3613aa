"""Tokens with which clients log in to Amazon MSK by IAM, for librdkafka.

A token is a signed URL, as ``aws-msk-iam-auth`` and ``aws-msk-iam-sasl-signer-python`` build it:
the query of ``kafka-cluster:Connect``, signed with version 4 of AWS's signatures, in base64.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from lakemark.extras import install_command

_REGION = re.compile(r"\.(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?:")

_VALID_FOR_S = 900
_USER_AGENT = "lakemark"


class SignerMissing(Exception):
    """The library that signs tokens is not installed, or finds no region or usable credentials."""


@dataclass(frozen=True, slots=True)
class MskToken:
    """Signs tokens for one region; an ``oauth_cb`` of librdkafka.

    Credentials are looked up for each token, so a profile or a role may rotate them.

    Attributes:
        region: the region of the cluster.
        profile: the profile of the credentials; "" for those of the environment or the machine.
    """

    region: str
    profile: str = ""

    def __call__(self, _: object) -> tuple[str, float]:
        """Return a token, and when it expires, in seconds since 1970.

        Raises:
            SignerMissing: no credentials were found, or they cannot be read.
        """
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        frozen, now = self._credentials(), time.time()
        url = f"https://kafka.{self.region}.amazonaws.com/?Action=kafka-cluster%3AConnect"
        request = AWSRequest("GET", url)
        SigV4QueryAuth(frozen, "kafka-cluster", self.region, expires=_VALID_FOR_S).add_auth(request)
        signed = f"{request.url}&User-Agent={_USER_AGENT}"
        return base64.urlsafe_b64encode(signed.encode()).decode().rstrip("="), now + _VALID_FOR_S

    def _credentials(self) -> Any:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        try:
            found = Session(profile=self.profile or None).get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            message = f"the credentials of AWS for sasl.mechanism AWS_MSK_IAM: {error}"
            raise SignerMissing(message) from error
        if frozen is None:
            message = "no credentials of AWS were found for sasl.mechanism AWS_MSK_IAM"
            raise SignerMissing(message)
        return frozen


def msk_token(bootstrap: str, environ: Mapping[str, str], profile: str = "") -> MskToken:
    """Return what signs tokens for a cluster.

    Args:
        bootstrap: the brokers. The names that AWS gives them contain the region.
        environ: the environment, which names the region if they do not.
        profile: see ``MskToken``.

    Raises:
        SignerMissing: the library is not installed, or the region is not known.
    """
    if find_spec("botocore") is None:
        message = f"sasl.mechanism AWS_MSK_IAM without the library boto3: {install_command('msk')}"
        raise SignerMissing(message)
    found = _REGION.search(bootstrap)
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if found is not None:
        region = found["region"]
    if not region:
        message = (
            "sasl.mechanism AWS_MSK_IAM without a region: set AWS_REGION, because the names of the "
            "brokers contain none"
        )
        raise SignerMissing(message)
    return MskToken(region, profile)
