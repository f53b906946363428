package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// binder is the account with which kube-controller-manager binds claims to volumes.
const binder = "system:serviceaccount:kube-system:persistent-volume-binder"

// auditPolicy records what is written with the rights of Lodestone's accounts and by the
// binder, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:lodestone-system:lodestone-provisioner
  - system:serviceaccount:lodestone-volumes:lodestone-home
  - ` + binder + `
  verbs: [create, update, patch, delete]
- level: None
`

// auditAllPolicy records all that is asked by any ServiceAccount but those of Kubernetes'
// own controllers.
const auditAllPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: [system:serviceaccounts:kube-system]
- level: Metadata
  userGroups: [system:serviceaccounts]
- level: None
`

// audit is a folder with the audit policy and the audit log of each cluster.
type audit struct{ folder string }

func newAudit(policy string) (audit, error) {
	folder, err := os.MkdirTemp("", "lodestone-audit-")
	if err != nil {
		return audit{}, fmt.Errorf("make folder for audit logs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "policy.yaml"), []byte(policy), 0o600); err != nil {
		return audit{}, fmt.Errorf("write audit policy: %w", errors.Join(err, os.RemoveAll(folder)))
	}
	return audit{folder}, nil
}

func (a audit) log(cluster string) string { return filepath.Join(a.folder, cluster+".log") }

func (a audit) args(cluster string) []string {
	if a.folder == "" {
		return nil
	}
	// One file: what is rotated away would be missed.
	return []string{"--audit-policy-file=" + filepath.Join(a.folder, "policy.yaml"), "--audit-log-path=" + a.log(cluster),
		"--audit-log-maxsize=2000"}
}

func (a audit) remove() {
	if a.folder != "" {
		_ = os.RemoveAll(a.folder)
	}
}

// Request is what an API server noted of a request.
type Request struct {
	User struct{ Username string }
	// UserAgent is the program that asked.
	UserAgent string
	Verb      string
	// ObjectRef is what it asked for; empty where that is no resource.
	ObjectRef      struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus struct {
		Code    int
		Message string
	}
	Annotations map[string]string
}

// Refused says whether the one who asked had no right to: by the roles, or by an admission
// policy. That a quota is full or a namespace ends is no matter of rights, nor is the
// refusal by which a move learns whether new pods are held back.
func (r Request) Refused() bool {
	message := r.ResponseStatus.Message
	return r.ResponseStatus.Code == http.StatusForbidden && !strings.Contains(message, "lodestone-move-proof") &&
		(r.Annotations["authorization.k8s.io/decision"] == "forbid" || strings.Contains(message, "ValidatingAdmissionPolicy"))
}

// What returns the resource of a request, with its subresource.
func (r Request) What() string {
	return strings.TrimSuffix(r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")
}

// Requests returns what the API server of a cluster noted since the start. The
// Fabric must have been started with Audit or AuditAll.
func (f *Fabric) Requests(cluster string) (_ []Request, err error) {
	file, err := os.Open(f.audit.log(cluster))
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var requests []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		requests = append(requests, request)
	}
	return requests, lines.Err()
}

// Writes returns how often Lodestone's accounts made each kind of write in a
// cluster, as "verb resource", since the start; leases are left out. The Fabric
// must have been started with Audit.
func (f *Fabric) Writes(cluster string) (map[string]int, error) {
	return f.count(cluster, func(account string) bool { return account != binder })
}

// BinderWrites is Writes of kube-controller-manager where it binds claims to volumes.
func (f *Fabric) BinderWrites(cluster string) (map[string]int, error) {
	return f.count(cluster, func(account string) bool { return account == binder })
}

func (f *Fabric) count(cluster string, by func(account string) bool) (map[string]int, error) {
	requests, err := f.Requests(cluster)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, request := range requests {
		if by(request.User.Username) && request.ObjectRef.Resource != "leases" &&
			!strings.HasPrefix(request.ObjectRef.Resource, "selfsubject") {
			counts[request.Verb+" "+request.What()]++
		}
	}
	return counts, nil
}

// awaitHTTP waits until a URL answers 200.
func awaitHTTP(ctx context.Context, url string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil // not listening yet
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", url, err)
	}
	return nil
}

// Contexts writes a kubeconfig with the contexts home, which is the current one,
// and west, each with all rights on its cluster, and returns its path. The file
// goes with the clusters.
func (f *Fabric) Contexts() (string, error) {
	all := clientcmdapi.NewConfig()
	for _, cluster := range []*testbed.Cluster{f.Home, f.West} {
		config, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
		if err != nil {
			return "", fmt.Errorf("read the kubeconfig of %s: %w", cluster.Name(), err)
		}
		current := config.Contexts[config.CurrentContext]
		if current == nil {
			return "", fmt.Errorf("the kubeconfig of %s has no current context", cluster.Name())
		}
		name := cluster.Name()
		all.Clusters[name] = config.Clusters[current.Cluster]
		all.AuthInfos[name] = config.AuthInfos[current.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	all.CurrentContext = f.Home.Name()
	content, err := clientcmd.Write(*all)
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig of both clusters: %w", err)
	}
	return f.Home.WriteFile("contexts.kubeconfig", content)
}
