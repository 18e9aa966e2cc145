package oauth

import "net/http"

func publicClient() *http.Client { return &http.Client{} }
