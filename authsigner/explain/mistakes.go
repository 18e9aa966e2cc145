package explain

import "fmt"

// Kind describes one kind of mistake.
type Kind struct {
	Code string
	What string // format of Mistake.What
	Fix  string
}

// Kinds returns all kinds of mistakes that can be found, in the order of docs/calling.md.
func Kinds() []Kind {
	return []Kind{
		{"missing_header", "The header %s is missing or empty%s.", "Send X-Public-Key, X-Timestamp and X-Signature, each once."},
		{"repeated_header", "The header %s is sent more than once.", "Send each of the three headers once. Look for a client or proxy that adds a second one."},
		{"malformed_public_key", "X-Public-Key is not a public key.", "Send the public key as issued: 8 to 128 letters, digits, - and _, without quotes or white space."},
		{"keys_swapped", "X-Public-Key contains the private key.", "Send the public key, sign with the private key, and replace the key pair, because the private key has been sent."},
		{"key_expired", "The key expired at %s.", "Use another key, or have the operator extend this one: gatehouse keys update --expires."},
		{"timestamp_unit", "X-Timestamp %s is %s.", "Send Unix time in whole seconds, such as 1760000000, and sign the same: Math.floor(Date.now() / 1000) in JavaScript, ToUnixTimeSeconds() in .NET."},
		{"timestamp_date", "X-Timestamp %s is a date.", "Send Unix time in whole seconds, such as 1760000000."},
		{"timestamp_fraction", "X-Timestamp %s has a fraction.", "Send whole seconds: round down before you build the string to sign."},
		{"timestamp_malformed", "X-Timestamp %s is not a Unix time.", "Send Unix time in whole seconds, decimal digits only."},
		{"wrong_clock", "X-Timestamp is %s the server's clock: the gateway rejects the request as expired.", "Set the sending machine's clock (NTP), use UTC, and sign each request when you send it, also when you repeat it. At most 5 minutes are allowed."},
		{"timestamp_other", "The signed timestamp is not the one in X-Timestamp: %s was signed.", "Read the clock once, and use the same digits in the header and in the string to sign."},
		{"newline_missing", "Instead of line feeds between the parts, the signed string has %s.", "Join timestamp, method, path and body by single line feeds (0x0A)."},
		{"newline_escaped", "The parts were joined by the characters %s instead of line feeds.", `Write it so that your language inserts a line feed: "\n" in double quotes in PHP and most languages, printf instead of echo in a shell.`},
		{"newline_crlf", "The parts were joined by CR LF.", "Join them by LF (0x0A) alone. Text tools and templates on Windows, and web pages that compute HMACs, insert CR LF."},
		{"newline_extra", "The signed string has an additional line feed %s.", "Sign nothing before the timestamp or after the body. A shell's echo adds a line feed; use printf."},
		{"part_missing", "The signed string lacks %s.", "Sign timestamp LF METHOD LF path LF body. If there is no body, the string ends with the third line feed."},
		{"part_order", "The parts were signed in another order: %s.", "Sign them in this order: timestamp, method, path, body."},
		{"part_extra", "The signed string contains %s.", "Sign timestamp, method, path and body, and nothing else."},
		{"method_case", "The signed method is %s.", "Sign the method in upper case, as it is sent."},
		{"method_other", "The signed method is %s.", "Sign the method that is sent; HEAD and GET have different signatures."},
		{"path_origin", "The signed path includes %s.", "Sign the path from the API's base path on, without scheme, host and port."},
		{"path_prefix_missing", "The signed path does not begin with the API's base path.", "Sign the whole path, from the API's base path on."},
		{"path_base", "The signed path includes the path under which the gateway is mounted.", "Sign the path from the API's base path on."},
		{"path_query_missing", "The signed path has no query string.", "Sign the path with its query string, as it is sent."},
		{"path_decoded", "The signed path is decoded.", "Sign the path as it is sent, percent-encoded."},
		{"path_encoded", "The signed path is encoded differently from the one that was sent: %s.", "Encode the URL once, sign its path, and send the same text. Take the path from the request object of your HTTP library if it encodes again."},
		{"path_slash", "The signed path differs by a slash from the one that was sent: %s.", "Sign the path exactly as it is sent."},
		{"path_case", "The signed path is in %s case.", "Sign the path exactly as it is sent."},
		{"path_other", "The signed path is %s.", "Sign each request by itself, with the path that is sent. A signature is valid for one path and timestamp only."},
		{"path_fragment", "The signed path differs at its end from the one that was sent: %s.", "Sign path and query as sent; a fragment is never sent."},
		{"query_order", "The parameters were signed in another order than sent.", "Sign the query string as it is sent. Do not sort it only for the signature."},
		{"query_encoded", "The signed query string is serialized differently from the one that was sent: %s.", "Serialize the query once, sign it, and send the same text."},
		{"body_missing", "The body was not signed.", "Sign the raw body that is sent, after the third line feed."},
		{"body_other", "A body was signed that was not sent: %s.", "Without a body, the signed string ends with the third line feed."},
		{"body_newline", "The signed body differs by a line feed at its end from the one that was sent.", "Sign the bytes that are sent. Editors and shells add a line feed at the end; curl --data removes line feeds, --data-binary does not."},
		{"body_encoded", "The signed body is serialized differently from the one that was sent: %s.", "Serialize the body once, sign these bytes, and send the same bytes."},
		{"body_hashed", "A hash of the body was signed: %s.", "Sign the raw body."},
		{"secret_whitespace", "The private key was used with %s.", "Remove white space when you read the private key from a file or a variable."},
		{"secret_quotes", "The private key was used with %s.", "Use the bytes of the private key as issued, without quotes: some tools keep those of .env files."},
		{"secret_extra", "The private key was used with %s.", "Use the bytes of the private key as issued, and nothing else."},
		{"secret_decoded", "The private key was decoded from %s before use.", "Use the bytes of the private key as issued. It is text, even if it looks like hex or base64."},
		{"secret_truncated", "Only a part of the private key was used: %s.", "Use all of the private key as issued, from its prefix to its last character."},
		{"secret_encoded", "The private key was encoded in %s before use.", "Use the bytes of the private key as issued."},
		{"secret_hashed", "A hash of the private key was used: %s.", "Use the bytes of the private key as issued."},
		{"secret_public_key", "The public key was used as the private key.", "Sign with the private key."},
		{"secret_previous", "The private key from before the last rotation was used, which is no longer valid.", "Use the current private key."},
		{"secret_placeholder", "The text %s was used as the private key.", "Check that the variable or file with the private key is read, and that its name is replaced by its value."},
		{"secret_empty", "An empty private key was used.", "Check that the variable or file with the private key is read."},
		{"algorithm", "The signature is %s instead of HMAC-SHA256.", "Compute HMAC with SHA-256: the private key is the key, the string to sign is the message."},
		{"algorithm_arguments", "Key and message of the HMAC are swapped.", "The private key is the key, the string to sign is the message."},
		{"text_encoded", "The string to sign was %s before it was signed.", "Sign the bytes of the string as it is."},
		{"text_utf16", "%s encoded in UTF-16.", "Encode both in UTF-8: Encoding.UTF8 in .NET, StandardCharsets.UTF_8 in Java."},
		{"signature_key", "X-Signature contains the %s key.%s", "Send the HMAC-SHA256 of the string to sign in hexadecimal, with the private key as the HMAC's key. The private key is never sent."},
		{"signature_message", "X-Signature is the signed string, followed by an HMAC.", "Write the string to the HMAC first, then ask for the sum: in Go, h.Write(message) and h.Sum(nil)."},
		{"signature_base64", "X-Signature is in base64.", "Send the signature in hexadecimal, 64 digits."},
		{"signature_encoding", "X-Signature is written as %s.", "Send 64 hexadecimal digits, two for each byte."},
		{"signature_prefixed", "X-Signature has other text beside the signature.", "Send the 64 hexadecimal digits alone."},
		{"signature_whitespace", "X-Signature contains white space.", "Remove the white space; some base64 and hex tools add a line feed."},
		{"signature_truncated", "X-Signature has fewer than 64 hexadecimal digits.", "Send all 64 digits, two for each byte."},
		{"signature_malformed", "X-Signature is not a signature in any known encoding.", "Send the HMAC-SHA256 in hexadecimal, 64 digits."},
	}
}

// mistake returns a mistake of a kind. arguments fill the kind's What.
func mistake(code string, arguments ...any) Mistake {
	for _, k := range Kinds() {
		if k.Code == code {
			return Mistake{Code: code, What: fmt.Sprintf(k.What, arguments...), Fix: k.Fix}
		}
	}
	panic("unknown kind of mistake: " + code)
}
