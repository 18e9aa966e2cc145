package caddymodule

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition/reference"
)

// documentName is the name of the published document, below the path of the reference.
const documentName = "openapi.yaml"

// provisionDocs renders the reference and the published document.
func (h *API) provisionDocs(d *definition.Definition) error {
	if h.DocsPath == "" {
		return nil
	}
	document, err := d.PublishedDocument(definition.PublishOptions{BaseURL: h.DocsBaseURL, PerKey: h.app.Limits.PerKey, PerIP: h.app.Limits.PerIP})
	if err != nil {
		return err //nolint:wrapcheck // it says what was being done
	}
	published, err := definition.Encode(document)
	if err != nil {
		return err //nolint:wrapcheck // it says what was being done
	}
	page, err := reference.Render(document, path.Base(h.DocsPath)+"/"+documentName)
	if err != nil {
		return err //nolint:wrapcheck // it says what was being done
	}
	h.docs = map[string]*operation{
		h.DocsPath:                      h.serveDocs("text/html; charset=utf-8", page),
		h.DocsPath + "/" + documentName: h.serveDocs("application/yaml", published),
	}
	return nil
}

// serveDocs returns an operation that is not signed and has a constant body. Requests count against a limit, like all others.
func (h *API) serveDocs(mediaType string, body []byte) *operation {
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return h.withMetrics(operation{name: "docs", docs: h.Docs, handle: func(w http.ResponseWriter, r *http.Request, req *request) error {
		signed := &signedRequest{request: req}
		req.details = signed
		if err := h.rateLimit(w, r, signed); err != nil {
			return err
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return errMethodNotAllowed
		}
		header := w.Header()
		header.Set("Content-Type", mediaType)
		header.Set("Content-Security-Policy", reference.Policy()+"; frame-ancestors 'none'")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache")
		header.Set("Etag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		return nil
	}})
}

// checkDocsPath returns an error if the reference could not be reached, or would hide a part of the API.
func (h *API) checkDocsPath() error {
	if h.DocsPath == "" {
		return nil
	}
	if err := checkPath("docs_path", h.DocsPath); err != nil {
		return err
	}
	if err := (definition.PublishOptions{BaseURL: h.DocsBaseURL}).Check(); err != nil {
		return fmt.Errorf("docs_path: %w", err)
	}
	base := h.BasePath + h.api.Base()
	for _, path := range []string{h.DocsPath, h.DocsPath + "/" + documentName} {
		if strings.HasPrefix(path+"/", base+"/") {
			return fmt.Errorf("invalid docs_path %q: %s is a path of the API, which has all below %s/: choose one outside, or mount the API below base_path", h.DocsPath, path, base)
		}
	}
	return nil
}
