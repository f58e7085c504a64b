package toolhive

import (
	"cmp"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

const (
	authzVersion = "1.0"
	cedarType    = "cedarv1"
	cedarKey     = "cedar"
	// policiesKey is that of the ConfigMap, where the spec names none.
	policiesKey = "authz.json"
	policiesDir = "/etc/toolhive/authz"
	// PoliciesVolume is the volume of the policies of spec.authzConfig.
	PoliciesVolume = "authz-config"
)

// policySpec is the spec of an MCPAuthzConfig.
type policySpec struct {
	Type   string         `json:"type"`
	Config map[string]any `json:"config"`
}

// authzSpec is spec.authzConfig.
type authzSpec struct {
	Type      string `json:"type"`
	ConfigMap *struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	} `json:"configMap"`
	Inline *struct {
		Policies     []string `json:"policies"`
		EntitiesJSON string   `json:"entitiesJson"`
		// PrimaryUpstreamProvider is for servers of several, and has no effect here; so says
		// the CRD.
		PrimaryUpstreamProvider string `json:"primaryUpstreamProvider"`
	} `json:"inline"`
	GroupClaimName  string `json:"groupClaimName"`
	RoleClaimName   string `json:"roleClaimName"`
	GroupEntityType string `json:"groupEntityType"`
}

// PoliciesOf is the ConfigMap that spec.authzConfig names; empty if it names none.
func PoliciesOf(srv *v1beta1.MCPServer) string {
	var spec authzSpec
	if srv.Spec.AuthzConfig == nil || json.Unmarshal(srv.Spec.AuthzConfig.Raw, &spec) != nil || spec.ConfigMap == nil || spec.Type == "inline" {
		return ""
	}
	return spec.ConfigMap.Name
}

// PrimaryUpstreamProvider is a field of spec.authzConfig that has no effect here; empty if
// it is not there.
func PrimaryUpstreamProvider(s *v1beta1.MCPServerSpec) string {
	var spec authzSpec
	if s.AuthzConfig == nil || json.Unmarshal(s.AuthzConfig.Raw, &spec) != nil || spec.Inline == nil {
		return ""
	}
	return spec.Inline.PrimaryUpstreamProvider
}

// authz is a file of policies.
type authz struct {
	Version string `json:"version"`
	Type    string `json:"type"`
	Cedar   *cedar `json:"cedar,omitempty"`
}

// cedar are policies in the language of that name.
type cedar struct {
	Policies        []string `json:"policies"`
	EntitiesJSON    string   `json:"entities_json"`
	GroupClaimName  string   `json:"group_claim_name,omitempty"`
	RoleClaimName   string   `json:"role_claim_name,omitempty"`
	GroupEntityType string   `json:"group_entity_type,omitempty"`
}

func (p *Proxy) addAuthz(srv *v1beta1.MCPServer, named Objects) (err *InvalidError) {
	if srv.Spec.AuthzConfig != nil {
		if p.Config.Authz, err = authzOf(srv, named.Policies); err == nil {
			p.mountPolicies(srv, named.Policies)
		}
	}
	if srv.Spec.AuthzConfigRef != nil && err == nil {
		p.Config.Authz, err = authzOfRef(srv, named)
	}
	return err
}

// mountPolicies mounts the policies of spec.authzConfig where ToolHive's operator does. The program reads those of the file.
func (p *Proxy) mountPolicies(srv *v1beta1.MCPServer, policies *corev1.ConfigMap) {
	name, key := v1beta1.PoliciesName(srv.Name), policiesKey
	if policies == nil {
		p.Policies = string(p.Config.Authz)
	} else {
		name, key = policies.Name, policiesKeyOf(srv)
	}
	p.Volumes = append(p.Volumes, corev1.Volume{Name: PoliciesVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: []corev1.KeyToPath{{Key: key, Path: policiesKey}}}}})
	p.Mounts = append(p.Mounts, corev1.VolumeMount{Name: PoliciesVolume, MountPath: policiesDir, ReadOnly: true})
}

// policiesKeyOf is the key of the ConfigMap that spec.authzConfig names.
func policiesKeyOf(srv *v1beta1.MCPServer) string {
	var spec authzSpec
	_ = json.Unmarshal(srv.Spec.AuthzConfig.Raw, &spec) // authzOf has read it
	return cmp.Or(spec.ConfigMap.Key, policiesKey)
}

func authzOf(srv *v1beta1.MCPServer, policies *corev1.ConfigMap) (json.RawMessage, *InvalidError) {
	const field = "authzConfig"
	var spec authzSpec
	if err := decodeField(field, srv.Spec.AuthzConfig, &spec); err != nil {
		return nil, err
	}
	switch {
	case spec.Type == "inline" && spec.Inline != nil:
		return policyFile(field, "spec.authzConfig.inline", authz{Version: authzVersion, Type: cedarType, Cedar: &cedar{
			Policies: spec.Inline.Policies, EntitiesJSON: cmp.Or(spec.Inline.EntitiesJSON, "[]"),
			GroupClaimName: spec.GroupClaimName, RoleClaimName: spec.RoleClaimName, GroupEntityType: spec.GroupEntityType,
		}})
	case spec.Type != "inline" && spec.ConfigMap != nil && policies != nil:
		return authzOfMap(spec, policies)
	}
	return nil, invalid(field, "type %q needs what it names: inline with policies, or configMap with the name of one", spec.Type)
}

// authzOfMap is what a ConfigMap holds, as JSON or YAML. What the spec says of claims goes
// over it.
func authzOfMap(spec authzSpec, policies *corev1.ConfigMap) (json.RawMessage, *InvalidError) {
	const field = "authzConfig"
	key := cmp.Or(spec.ConfigMap.Key, policiesKey)
	text, found := policies.Data[key]
	if !found {
		return nil, invalid(field, "ConfigMap %s has no key %s: add it, or name another in configMap.key", policies.Name, key)
	}
	var content map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
		return nil, invalid(field, "key %s of ConfigMap %s is neither JSON nor YAML: %w", key, policies.Name, err)
	}
	if options, ok := content[cedarKey].(map[string]any); ok && content["type"] == cedarType {
		for name, value := range map[string]string{
			"group_claim_name": spec.GroupClaimName, "role_claim_name": spec.RoleClaimName, "group_entity_type": spec.GroupEntityType,
		} {
			if value != "" {
				options[name] = value
			}
		}
	}
	return policyFile(field, "key "+key+" of ConfigMap "+policies.Name, content)
}

// configKeys is where the configuration of each type is in the file.
var configKeys = map[string]string{cedarType: cedarKey, "httpv1": "pdp"}

// authzOfRef is what an MCPAuthzConfig says.
func authzOfRef(srv *v1beta1.MCPServer, named Objects) (json.RawMessage, *InvalidError) {
	const field = "authzConfigRef"
	var ref struct {
		Name string `json:"name"`
	}
	if err := decodeField(field, srv.Spec.AuthzConfigRef, &ref); err != nil {
		return nil, err
	}
	var spec policySpec
	if err := decodeSpec(field, named.Authz, &spec); err != nil {
		return nil, err
	}
	key := configKeys[spec.Type]
	if key == "" || len(spec.Config) == 0 {
		return nil, invalid(field, "MCPAuthzConfig %s has type %q, and a configuration of %d fields: write %s or httpv1, and its configuration",
			ref.Name, spec.Type, len(spec.Config), cedarType)
	}
	return policyFile(field, "MCPAuthzConfig "+ref.Name, map[string]any{"version": authzVersion, "type": spec.Type, key: spec.Config})
}

// policyFile is the file that the program reads, or what is wrong with it: one of Cedar
// without a policy would deny everything, which nobody writes on purpose.
func policyFile(field, where string, content any) (json.RawMessage, *InvalidError) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, invalid(field, "%s: %w", where, err)
	}
	var file authz
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, invalid(field, "%s is no file of policies: %w", where, err)
	}
	var entities []any
	switch {
	case file.Version == "" || configKeys[file.Type] == "":
		return nil, invalid(field, "%s has version %q and type %q: write version %s, and type %s or httpv1", where, file.Version, file.Type, authzVersion, cedarType)
	case file.Type != cedarType:
		return text, nil
	case file.Cedar == nil || len(file.Cedar.Policies) == 0:
		return nil, invalid(field, "%s has no policy: name one, such as permit(principal, action, resource);", where)
	case file.Cedar.EntitiesJSON != "" && json.Unmarshal([]byte(file.Cedar.EntitiesJSON), &entities) != nil:
		return nil, invalid(field, "the entities of %s are no JSON list: write [] for none", where)
	}
	return text, nil
}
