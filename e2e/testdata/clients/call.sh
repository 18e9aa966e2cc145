# A business that signs by hand (authsigner/testdata/README.md): nothing but a shell, openssl and curl.
set -eu
timestamp=$(date +%s)
signature=$(printf '%s\n%s\n%s\n%s' "$timestamp" "$METHOD" "$TARGET" "$BODY" |
  openssl dgst -sha256 -hmac "$GATEHOUSE_SECRET" | sed 's/^.* //')
set -- --silent --show-error --max-time 20 --path-as-is --globoff "$PROTOCOL"
if [ "$METHOD" = HEAD ]; then set -- "$@" --head; else set -- "$@" --request "$METHOD"; fi
if [ -n "$BODY" ]; then set -- "$@" --data-binary "$BODY"; fi
curl "$@" --output "$OUT" --write-out '%{http_code} %{http_version}' \
  --header "X-Public-Key: $GATEHOUSE_KEY" --header "X-Timestamp: $timestamp" --header "X-Signature: $signature" \
  "$URL$TARGET"
