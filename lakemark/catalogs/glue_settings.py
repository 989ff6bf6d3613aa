"""Which Data Catalog of AWS Glue is used. This module needs no library of AWS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakemark.catalogs.catalog_options import check_options


@dataclass(frozen=True, slots=True)
class GlueSettings:
    """The region and the account of a Data Catalog. Credentials are those of the process.

    Attributes:
        region: the AWS region; None for that of the process.
        catalog_id: the account that owns the Data Catalog; None for that of the credentials.
        endpoint_url: the URL of the service, if it is not that of the region.
    """

    region: str | None = None
    catalog_id: str | None = None
    endpoint_url: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> GlueSettings:
        """Parse the options of the catalog ``glue``.

        Raises:
            InvalidConfig: an option is unknown.
        """
        check_options("glue", options, optional=("region", "catalog_id", "endpoint_url"))
        return cls(*(options.get(one) or None for one in ("region", "catalog_id", "endpoint_url")))
