package oauth

import (
	"net/http"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// Paths.
//
//nolint:gosec // G101 takes the path of the token endpoint for a secret
const (
	pathAuthorize = "/oauth/authorize"
	pathToken     = "/oauth/token"
	pathRevoke    = "/oauth/revoke"
	pathRegister  = "/oauth/register"

	pathResourceMetadata = "/.well-known/oauth-protected-resource"
	pathServerMetadata   = "/.well-known/oauth-authorization-server"
	pathOpenIDAlias      = "/.well-known/openid-configuration"
)

// serverMetadata is the authorization server metadata (RFC 8414, RFC 9207, RFC 9728, Client ID Metadata Document draft).
type serverMetadata struct {
	Issuer                 string   `json:"issuer"`
	AuthorizationEndpoint  string   `json:"authorization_endpoint"`
	TokenEndpoint          string   `json:"token_endpoint"`
	RevocationEndpoint     string   `json:"revocation_endpoint"`
	RegistrationEndpoint   string   `json:"registration_endpoint"`
	ScopesSupported        []string `json:"scopes_supported"`
	ResponseTypes          []string `json:"response_types_supported"`
	ResponseModes          []string `json:"response_modes_supported"`
	GrantTypes             []string `json:"grant_types_supported"`
	TokenAuthMethods       []string `json:"token_endpoint_auth_methods_supported"`
	RevocationAuthMethods  []string `json:"revocation_endpoint_auth_methods_supported"`
	CodeChallengeMethods   []string `json:"code_challenge_methods_supported"`
	IssInResponses         bool     `json:"authorization_response_iss_parameter_supported"`
	ClientMetadataDocument bool     `json:"client_id_metadata_document_supported"`
	ProtectedResources     []string `json:"protected_resources"`
	ServiceDocumentation   string   `json:"service_documentation,omitempty"`
}

// resourceMetadata is the protected resource metadata (RFC 9728).
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	ResourceName         string   `json:"resource_name,omitempty"`
	Documentation        string   `json:"resource_documentation,omitempty"`
}

func (s *Server) serverMetadata() serverMetadata {
	return serverMetadata{
		Issuer:                 s.o.Issuer,
		AuthorizationEndpoint:  s.o.Issuer + pathAuthorize,
		TokenEndpoint:          s.o.Issuer + pathToken,
		RevocationEndpoint:     s.o.Issuer + pathRevoke,
		RegistrationEndpoint:   s.o.Issuer + pathRegister,
		ScopesSupported:        scope.Published(),
		ResponseTypes:          []string{"code"},
		ResponseModes:          []string{"query"},
		GrantTypes:             grantTypes(),
		TokenAuthMethods:       []string{"none"},
		RevocationAuthMethods:  []string{"none"},
		CodeChallengeMethods:   []string{"S256"},
		IssInResponses:         true,
		ClientMetadataDocument: true,
		ProtectedResources:     []string{s.resource},
		ServiceDocumentation:   s.o.Documentation,
	}
}

func (s *Server) resourceMetadata() resourceMetadata {
	return resourceMetadata{
		Resource:             s.resource,
		AuthorizationServers: []string{s.o.Issuer},
		ScopesSupported:      scope.Published(),
		BearerMethods:        []string{"header"},
		ResourceName:         s.o.ResourceName,
		Documentation:        s.o.Documentation,
	}
}

// metadataURL returns the resource_metadata of challenges.
func (s *Server) metadataURL() string { return s.o.Issuer + pathResourceMetadata + s.o.ResourcePath }

func serveMetadata(document any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=300")
		writeJSON(w, http.StatusOK, document)
	}
}
