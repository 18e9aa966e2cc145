#!/bin/sh
# Sends one request with a mistake: client.sh MISTAKE, with URL, KEY and SECRET in the environment.
path='/api/v1/equipment?category=Power%20tools&page=2'
timestamp=$(date +%s)
hmac() { openssl dgst -sha256 -hmac "$SECRET" "$@"; }
message() { printf '%s\nGET\n%s\n' "$timestamp" "$path"; }
case $1 in
"echo") signature=$(echo "$(message)
" | hmac -r | cut -d' ' -f1) ;;
"command substitution") signature=$(printf '%s' "$(message)" | hmac -r | cut -d' ' -f1) ;;
"escaped in quotes") signature=$(printf '%s' "$timestamp\\nGET\\n$path\\n" | hmac -r | cut -d' ' -f1) ;;
"all of openssl's output") signature=$(message | hmac) ;;
"binary in base64") signature=$(message | hmac -binary | base64 -w0) ;;
"no key") signature=$(message | openssl dgst -sha256 -r | cut -d' ' -f1) ;;
"milliseconds") timestamp=$(date +%s%3N) signature=$(timestamp=$(date +%s); message | hmac -r | cut -d' ' -f1) ;;
esac
curl -sS -o /dev/null -H "X-Public-Key: $KEY" -H "X-Timestamp: $timestamp" -H "X-Signature: $signature" "$URL$path"
