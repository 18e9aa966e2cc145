// Command adapter stands between the gateway and the billing system of docs/legacy.md, and does what a definition cannot: it filters by the
// codes of the system, and says with a status what the system says with the member Error. All else passes as it is.
//
//	adapter -listen localhost:8082 -service http://localhost:8081
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"
)

func main() {
	listen := flag.String("listen", "localhost:8082", "address to serve on, which only the gateway may reach")
	service := flag.String("service", "http://localhost:8081", "URL of the billing system")
	flag.Parse()
	target, err := url.Parse(*service)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: *listen, Handler: adapter(target), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// codes are those of the billing system by what the definition calls them.
func codes() map[string]string { return map[string]string{"open": "1", "paid": "2", "cancelled": "9"} }

// statuses are those of errors that callers can cause. Others are the platform's: without a record, the gateway makes 502 of them.
func statuses() map[string]int {
	return map[string]int{"44": http.StatusNotFound, "48": http.StatusConflict}
}

func adapter(service *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(service)
			query := r.In.URL.Query()
			if code, ok := codes()[query.Get("st")]; ok {
				query.Set("st", code)
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		ModifyResponse: translate,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			log.Print(err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

const maxBody = 8 << 20 // as much as the gateway reads

// translate gives an error of the billing system its status and a body as the definition has it.
func translate(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if closed := response.Body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if len(body) > maxBody {
		return errors.New("the response is too large")
	}
	var failed struct {
		Error *struct{ Code, Text string }
	}
	if json.Unmarshal(body, &failed) == nil && failed.Error != nil && statuses()[failed.Error.Code] > 0 {
		response.StatusCode = statuses()[failed.Error.Code]
		response.Header.Set("Content-Type", "application/problem+json")
		if body, err = json.Marshal(map[string]string{"title": failed.Error.Text}); err != nil {
			return err
		}
	}
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	response.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
