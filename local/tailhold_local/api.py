"""Asks the API server whether it is there and what its nodes say."""

import http.client
import json
import ssl
from typing import Any

from tailhold_local.addresses import API_PORT, Addresses
from tailhold_local.layout import Layout


class Api:
    """Reads from one cluster as its administrator."""

    def __init__(self, layout: Layout, addresses: Addresses) -> None:
        self._host = addresses.control
        self._tls = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
        self._tls.load_cert_chain(layout.pki / "admin.crt", layout.pki / "admin.key")

    def get(self, path: str) -> tuple[int, str]:
        """The status and body of a GET; status 0 while nothing answers."""
        connection = http.client.HTTPSConnection(self._host, API_PORT, timeout=2, context=self._tls)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def ready(self) -> bool:
        """Whether the API server is ready."""
        return self.get("/readyz")[0] == 200

    def has_default_account(self) -> bool:
        """Whether pods can be made: each needs the service account of its namespace."""
        return self.get("/api/v1/namespaces/default/serviceaccounts/default")[0] == 200

    def nodes(self) -> dict[str, bool]:
        """Every node and whether it is Ready."""
        status, body = self.get("/api/v1/nodes")
        return readiness(json.loads(body)) if status == 200 else {}


def readiness(nodes: dict[str, Any]) -> dict[str, bool]:
    """Names of nodes and whether they are Ready, from a NodeList."""
    return {node["metadata"]["name"]: _ready(node) for node in nodes["items"]}


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
