"""Sends one request with a mistake: client.py MISTAKE, with URL, KEY and SECRET in the environment."""

import base64, datetime, hashlib, hmac, json, os, sys, time, urllib.error, urllib.parse, urllib.request

mistake, base, key, secret = sys.argv[1], os.environ["URL"], os.environ["KEY"], os.environ["SECRET"]
timestamp = signed_timestamp = str(int(time.time()))
path = signed_path = "/api/v1/equipment?" + urllib.parse.urlencode({"category": "Power tools", "page": 2})
body = signed_body = None

if mistake == "float time":
    timestamp = signed_timestamp = str(time.time())
elif mistake == "local time":
    signed_timestamp = str(int(timestamp) + 7 * 3600)
elif mistake == "quote and urlencode":
    signed_path = "/api/v1/equipment?" + urllib.parse.urlencode({"category": "Power tools", "page": 2}, quote_via=urllib.parse.quote)
elif mistake == "body as dict":
    path = signed_path = "/api/v1/jobs"
    body, signed_body = b'{"page":2}', json.dumps({"page": 2})

message = "\n".join([signed_timestamp, "POST" if body else "GET", signed_path, signed_body or ""]).encode()
if mistake == "none in f-string":
    message = f"{timestamp}\nGET\n{signed_path}\n{body}".encode()
digest = hmac.new(secret.encode(), message, hashlib.sha256)
signature = digest.hexdigest()
if mistake == "bytes literal":
    signature = str(base64.b64encode(digest.digest()))
elif mistake == "no hmac":
    signature = hashlib.sha256(secret.encode() + message).hexdigest()

request = urllib.request.Request(base + path, data=body, headers={"X-Public-Key": key, "X-Timestamp": timestamp, "X-Signature": signature})
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError:
    pass
