package setup

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// protected are the tiers that the admission policy of the real CRDs keeps from being
// deleted: an abort cannot take them back.
var protected = []string{"tiers/default", "tiers/kube-admin", "tiers/kube-baseline"}

// Stored asks etcd, behind the back of the API server, which objects the v3 CRDs store:
// "globalnetworksets/blocklist-0". Tiers that may not be deleted are left out.
func (s *Setup) Stored(ctx context.Context) ([]string, error) {
	const prefix = "/registry/" + resources.V3Group + "/"
	const end = "/registry/" + resources.V3Group + "0" // the character after the slash
	server, err := s.Server(harness.APIServer)
	if err != nil {
		return nil, err
	}
	etcd, err := server.Flag("etcd-servers")
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{
		"key": base64.StdEncoding.EncodeToString([]byte(prefix)), "range_end": base64.StdEncoding.EncodeToString([]byte(end)), "keys_only": true,
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd+"/v3/kv/range", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask etcd: %w", err)
	}
	defer response.Body.Close()
	var answer struct {
		KVs []struct {
			Key []byte `json:"key"`
		} `json:"kvs"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask etcd: status %s: %w", response.Status, err)
	}
	keys := []string{}
	for _, kv := range answer.KVs {
		name := strings.TrimPrefix(string(kv.Key), prefix)
		if !slices.Contains(protected, name) || os.Getenv(crds.EnvDir) == "" {
			keys = append(keys, name)
		}
	}
	return keys, nil
}
