package oauth

import "net/http"

// AuthorizePath is the path of the authorization endpoint.
const AuthorizePath = "/oauth/authorize"

// Paths of pages and resources that other packages serve.
const (
	ApprovePath  = "/oauth/approve" // the approval page, with ?request=<Request.ID>
	ResourcePath = "/mcp"           // the protected resource
)

// Paths of the other endpoints.
//
//nolint:gosec // G101 takes the path of the token endpoint for a secret
const (
	pathToken    = "/oauth/token"
	pathRevoke   = "/oauth/revoke"
	pathRegister = "/oauth/register"

	pathResourceMetadata = "/.well-known/oauth-protected-resource"
	pathServerMetadata   = "/.well-known/oauth-authorization-server"
	pathOpenIDAlias      = "/.well-known/openid-configuration"
)

// serverMetadata returns the authorization server metadata (RFC 8414, RFC 9207, RFC 9728, Client ID Metadata Document draft).
func (s *Server) serverMetadata() map[string]any {
	return map[string]any{
		"issuer":                                         s.o.Issuer,
		"authorization_endpoint":                         s.o.Issuer + AuthorizePath,
		"token_endpoint":                                 s.o.Issuer + pathToken,
		"revocation_endpoint":                            s.o.Issuer + pathRevoke,
		"registration_endpoint":                          s.o.Issuer + pathRegister,
		"scopes_supported":                               s.o.Areas.Published(),
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          grantTypes(),
		"token_endpoint_auth_methods_supported":          []string{"none"},
		"revocation_endpoint_auth_methods_supported":     []string{"none"},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          true,
		"protected_resources":                            []string{s.resource},
	}
}

// resourceMetadata returns the protected resource metadata (RFC 9728).
func (s *Server) resourceMetadata() map[string]any {
	metadata := map[string]any{
		"resource":                 s.resource,
		"authorization_servers":    []string{s.o.Issuer},
		"scopes_supported":         s.o.Areas.Published(),
		"bearer_methods_supported": []string{"header"},
	}
	if s.o.ResourceName != "" {
		metadata["resource_name"] = s.o.ResourceName
	}
	return metadata
}

func serveMetadata(document map[string]any) endpoint {
	return endpoint{
		methods: []string{http.MethodGet, http.MethodHead},
		cors:    true,
		serve: func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Del("Pragma")
			w.Header().Set("Cache-Control", "public, max-age=300")
			writeJSON(w, http.StatusOK, document)
			return nil
		},
	}
}
