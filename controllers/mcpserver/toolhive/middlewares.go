package toolhive

import (
	"cmp"
	"encoding/json"
)

// maxBody is how long a request may be, in bytes: the program's own default.
const maxBody = 8 << 20

// Middleware is one thing that the program does with each request.
type Middleware struct {
	Type string `json:"type"`
	// Parameters are those of the type; null for none.
	Parameters any `json:"parameters"`
}

// parameters of a middleware.
type parameters map[string]any

// middlewares are those that the fields of a file ask for, the outermost first. What is
// not in this list is not done, whatever the fields say: the program takes the list alone.
// Its usage metrics, which it would send to its makers, are left out.
func middlewares(rc *RunConfig) []Middleware {
	server := parameters{"server_name": rc.Name, "transport": rc.Transport}
	with := func(more parameters) parameters {
		for name, value := range server {
			more[name] = value
		}
		return more
	}
	tools := parameters{"filter_tools": rc.ToolsFilter, "tools_override": rc.ToolsOverride}
	filtered := len(rc.ToolsFilter)+len(rc.ToolsOverride) > 0
	var list []Middleware
	add := func(wanted bool, kind string, values any) {
		if wanted {
			list = append(list, Middleware{Type: kind, Parameters: values})
		}
	}
	add(true, "bodylimit", parameters{"max_bytes": cmp.Or(rc.MaxRequestBodySize, maxBody)})
	add(rc.Audit != nil, "audit", parameters{"config_data": rc.Audit, "transport_type": rc.Transport})
	add(true, "auth", authParameters(rc))
	tokens := rc.AuthServer["disable_upstream_token_injection"] != true
	add(rc.AuthServer != nil && !tokens, "strip-auth", parameters{})
	add(rc.AuthServer != nil && tokens, "upstreamswap", parameters{"config": parameters{"provider_name": rc.upstream}})
	add(rc.TokenExchange != nil, "tokenexchange", parameters{"token_exchange_config": rc.TokenExchange})
	add(filtered, "tool-filter", tools)
	add(filtered, "tool-call-filter", tools)
	add(true, "mcp-parser", parameters{})
	add(rc.Telemetry != nil, "telemetry", with(parameters{"config": rc.Telemetry}))
	add(rc.RateLimit != nil, "ratelimit", rateLimitParameters(rc))
	add(len(rc.MutatingWebhooks) > 0, "mutating-webhook", with(parameters{"webhooks": rc.MutatingWebhooks}))
	add(len(rc.ValidatingWebhooks) > 0, "validating-webhook", with(parameters{"webhooks": rc.ValidatingWebhooks}))
	add(rc.Authz != nil, "authorization", parameters{"config_data": authzOfUsers(rc)})
	add(true, "recovery", nil)
	return list
}

// authParameters without an OIDC configuration let everybody in, as a local user.
func authParameters(rc *RunConfig) parameters {
	values := parameters{}
	if rc.OIDC != nil {
		values["oidc_config"] = rc.OIDC
	}
	if rc.AuthServer != nil {
		values["embedded_auth_server_issuer"] = rc.AuthServer["issuer"]
	}
	return values
}

// authzOfUsers are the policies. Behind an authorization server those of Cedar are about the claims of who knows the
// users, and not about those of the tokens that the server issues.
func authzOfUsers(rc *RunConfig) any {
	var file map[string]any
	if rc.AuthServer == nil || json.Unmarshal(rc.Authz, &file) != nil || file["type"] != cedarType {
		return rc.Authz
	}
	file[cedarKey].(map[string]any)["primary_upstream_provider"] = rc.upstream // policyFile has seen to it
	return file
}
