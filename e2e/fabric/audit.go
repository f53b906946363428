package fabric

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// auditPolicy records what is asked with the rights of Lodestone's accounts, and
// nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:lodestone-system:lodestone-provisioner
  - system:serviceaccount:lodestone-volumes:lodestone-home
  verbs: [create, update, patch, delete]
- level: None
`

// audit is a folder with the audit policy and the audit log of each cluster.
type audit struct{ folder string }

func newAudit() (audit, error) {
	folder, err := os.MkdirTemp("", "lodestone-audit-")
	if err != nil {
		return audit{}, fmt.Errorf("make folder for audit logs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return audit{}, fmt.Errorf("write audit policy: %w", errors.Join(err, os.RemoveAll(folder)))
	}
	return audit{folder}, nil
}

func (a audit) log(cluster string) string { return filepath.Join(a.folder, cluster+".log") }

func (a audit) args(cluster string) []string {
	if a.folder == "" {
		return nil
	}
	return []string{"--audit-policy-file=" + filepath.Join(a.folder, "policy.yaml"), "--audit-log-path=" + a.log(cluster)}
}

func (a audit) remove() {
	if a.folder != "" {
		_ = os.RemoveAll(a.folder)
	}
}

// Writes returns how often Lodestone's accounts made each kind of write in a
// cluster, as "verb resource", since the start; leases are left out. The Fabric
// must have been started with Audit.
func (f *Fabric) Writes(cluster string) (_ map[string]int, err error) {
	file, err := os.Open(f.audit.log(cluster))
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	counts := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb      string
			ObjectRef struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		if event.ObjectRef.Resource == "leases" || strings.HasPrefix(event.ObjectRef.Resource, "selfsubject") {
			continue
		}
		counts[strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")]++
	}
	return counts, lines.Err()
}
