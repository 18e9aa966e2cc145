package authsigner_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

func ExampleSign() {
	secret := authsigner.Secret("correct horse battery staple")
	const timestamp = 1_760_000_000
	fmt.Printf("%q\n", authsigner.SigningString(timestamp, "GET", "/api/v1/invoices?page=2", nil))
	fmt.Println(authsigner.Sign(secret, timestamp, "GET", "/api/v1/invoices?page=2", nil))
	// Output:
	// "1760000000\nGET\n/api/v1/invoices?page=2\n"
	// 8f10dd8e9a3630bf8152fd4fcc00ae259b139ccbe325cc1368a80b398233c5a1
}

// A calling business signs its requests with a Transport, and a server verifies them with a Verifier.
func Example() {
	credential, err := authsigner.DecodeCredential("pk_test_example_0001", map[string]any{
		"private_key":   "correct horse battery staple",
		"business_id":   "1",
		"business_name": "Zoë's Bakery",
		"business_slug": "zoes-bakery",
		"status":        "active",
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	verifier := &authsigner.Verifier{Source: memoryStore{credential.PublicKey: credential}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := verifier.Verify(r, r.RequestURI)
		switch {
		case errors.Is(err, authsigner.ErrAccountInactive):
			w.WriteHeader(http.StatusForbidden)
		case errors.Is(err, authsigner.ErrUnavailable):
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("X-Business", caller.BusinessSlug)
		}
	}))
	defer server.Close()

	client := &http.Client{
		Timeout: 10 * time.Second,
		Transport: &authsigner.Transport{
			PublicKey:  "pk_test_example_0001",
			PrivateKey: "correct horse battery staple",
		},
	}
	response, err := client.Get(server.URL + "/api/v1/invoices?page=2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	fmt.Println(response.StatusCode, response.Header.Get("X-Business"))

	unsigned, err := http.Get(server.URL + "/api/v1/invoices?page=2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer unsigned.Body.Close()
	fmt.Println(unsigned.StatusCode)
	// Output:
	// 200 zoes-bakery
	// 401
}

// If the gateway is mounted below a path, that path is not part of what is signed.
func ExampleTransport_basePath() {
	client := &http.Client{Transport: &authsigner.Transport{
		PublicKey:  "pk_test_example_0001",
		PrivateKey: "correct horse battery staple",
		BasePath:   "/gw", // the API is at https://example.com/gw/api/v1/…
		Now:        func() time.Time { return time.Unix(1_760_000_000, 0) },
		Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			fmt.Println(r.Header.Get(authsigner.HeaderPublicKey))
			fmt.Println(r.Header.Get(authsigner.HeaderTimestamp))
			fmt.Println(r.Header.Get(authsigner.HeaderSignature))
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		}),
	}}
	response, err := client.Get("https://example.com/gw/api/v1/invoices?page=2")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = response.Body.Close()
	// Output:
	// pk_test_example_0001
	// 1760000000
	// 8f10dd8e9a3630bf8152fd4fcc00ae259b139ccbe325cc1368a80b398233c5a1
}
