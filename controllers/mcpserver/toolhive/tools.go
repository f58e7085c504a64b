package toolhive

import "github.com/phasegate/phasegate/api/toolhive/v1beta1"

// Tool is what clients see in the place of a tool of the server.
type Tool struct {
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
}

// toolSpec is the spec of an MCPToolConfig.
type toolSpec struct {
	Filter   []string `json:"toolsFilter"`
	Override map[string]struct {
		Tool
		// Annotations are hints for clients, which the file has no place for.
		Annotations map[string]any `json:"annotations"`
	} `json:"toolsOverride"`
}

func (p *Proxy) addTools(srv *v1beta1.MCPServer, named Objects) *InvalidError {
	const field = "toolConfigRef"
	if srv.Spec.ToolConfigRef == nil {
		return nil
	}
	var spec toolSpec
	if err := decodeSpec(field, named.Tool, &spec); err != nil {
		return err
	}
	for name, tool := range spec.Override {
		switch {
		case len(tool.Annotations) > 0:
			return invalid(field, "MCPToolConfig %s has annotations for the tool %s, which this proxy cannot change: remove them", named.Tool.GetName(), name)
		case tool.Tool == Tool{}:
			return invalid(field, "MCPToolConfig %s says nothing of the tool %s: give it a name or a description", named.Tool.GetName(), name)
		}
		if p.Config.ToolsOverride == nil {
			p.Config.ToolsOverride = map[string]Tool{}
		}
		p.Config.ToolsOverride[name] = tool.Tool
	}
	p.Config.ToolsFilter = spec.Filter
	return nil
}
