#!/usr/bin/env python3
"""Runs a command with a permit, and gives the permit back if the command fails: take.py URL LIMIT CLIENT COMMAND..."""
import json, os, subprocess, sys, time, urllib.error, urllib.request, uuid

url, limit, client, *command = sys.argv[1:]
fields = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("TIDEGATE_TOKEN", "")}


def post(path, body):
    """Returns the response. Repeats a request without a response: its id is charged once."""
    for _ in range(5):
        request = urllib.request.Request(url + path, json.dumps(body).encode(), fields)
        try:
            return urllib.request.urlopen(request, timeout=90)
        except urllib.error.HTTPError as refused:
            return refused
        except OSError:
            time.sleep(1)
    sys.exit("no response from " + url)


take = {"limits": [{"limit": limit, "client": client}], "max_wait": "1s", "id": str(uuid.uuid4())}
while (response := post("/v1/take", take)).status != 200:
    if response.status != 429 or "Retry-After" not in response.headers:
        sys.exit(response.read().decode())
    time.sleep(int(response.headers["Retry-After"]))
code = subprocess.call(command)
if code != 0:
    post("/v1/return", {"id": take["id"]})
sys.exit(code)
