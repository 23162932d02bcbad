"""The row with a signed token and a condition on its claim, as Envoy's filters for JWT and RBAC have it."""

from __future__ import annotations

from contestant import Contestant
from gateways import envoy, tidegate
from row import AtMost, Row
from rows import ENVOY, TIDEGATE

# Signed once for the key set in config/claims_jwks.json, with the claim `role: admin`, until the year 2100. Its private key
# was not kept.
TOKEN = (
    "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6IjEifQ."
    "eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tLyIsImF1ZCI6ImFwaSIsInN1YiI6InVzZXItNTAwIiwicm9sZSI6ImFkbWluIiwiZXhwIjo0MTAyNDQ0ODAwfQ"
    ".Riz_u67GuGbY9ida_uKTZuO1Eup1BvTzEntFObvIM1ZpNItntzpoxZ-OeHKYooshIBQLR_5z0ed6TYcPguj19Q"
)
FIELDS = (("Authorization", f"Bearer {TOKEN}"),)

ROW = Row(
    name="claims",
    title="A signed token, and a condition on its claim",
    about="The gateway verifies an ES256 signature, the issuer and the audience of each request's token, and requires the "
    "claim `role: admin`. Neither gateway keeps verified tokens.",
    contestants=[
        Contestant("tidegate", TIDEGATE, "tidegate_claims.yaml", tidegate("tidegate_claims.yaml"), fields=FIELDS),
        Contestant("Envoy", ENVOY, "envoy_claims.yaml", envoy("envoy_claims.yaml"), fields=FIELDS),
    ],
    goals=[AtMost("tidegate", "Envoy", 1.0)],
)
