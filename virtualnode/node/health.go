package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// maxFailures is how many probes in a row must fail before a remote cluster counts as silent: one
// missed answer is not an outage.
const maxFailures = 3

// missedBeats is how many heartbeats in a row the agent may miss.
const missedBeats = 6

// Health is what probes have shown of a remote cluster.
type Health struct {
	// Answered says that a probe succeeded since the start.
	Answered bool
	// Failures is how many probes have failed since the last one that succeeded, Problem is the
	// sentence of the last failure and Reason its word.
	Failures        int
	Reason, Problem string
	// Missing is a sentence if home has no HomeCluster object there.
	Missing string
	// Unwanted is a sentence if the cluster must not be used: it is the home
	// cluster, another RemoteCluster stands for it, or a copy of this home cluster may act there.
	// UnwantedReason is its word.
	Unwanted, UnwantedReason string
	// Home is the HomeCluster of this home as last read.
	Home *remotev1alpha1.HomeCluster
	// Beats is how often home has renewed its heartbeat since the start.
	Beats int
}

// Silent reports whether the remote cluster counts as silent.
func (h Health) Silent() bool { return h.Failures >= maxFailures }

// Alive reports whether the remote cluster answers, as far as is known.
func (h Health) Alive() bool { return h.Answered && !h.Silent() }

// State returns the state of the cluster, and false if it is not known yet: the node's conditions
// stay as they are until then.
func (h Health) State(cluster string) (State, bool) {
	switch {
	case h.Silent():
		return State{Reason: h.Reason, Message: h.Problem}, true
	case !h.Answered:
		return State{}, false
	case h.Unwanted != "":
		return State{Reason: h.UnwantedReason, Message: h.Unwanted}, true
	case h.Missing != "":
		return State{Reason: "NoHomeCluster", Message: h.Missing}, true
	case h.Home == nil:
		return State{}, false
	case h.Home.DeletionTimestamp != nil:
		return State{Reason: "Leaving", Message: fmt.Sprintf("the owner of cluster %s has withdrawn its HomeCluster %s: pods there "+
			"are being ended", cluster, h.Home.Name)}, true
	}
	ready := meta.FindStatusCondition(h.Home.Status.Conditions, remotev1alpha1.Ready)
	switch {
	case ready == nil:
		return State{Reason: "AgentSilent", Message: fmt.Sprintf("the remote agent of cluster %s has not answered yet: check that it runs "+
			"(deploy/remote)", cluster)}, true
	case ready.Status != metav1.ConditionTrue:
		return State{Reason: "HomeClusterNotReady", Message: clip(ready.Message)}, true
	case h.heartbeatUnseen():
		return State{Reason: "AgentSilent", Message: fmt.Sprintf("the remote agent of cluster %s does not see this cluster's heartbeat: check "+
			"that it runs (deploy/remote)", cluster)}, true
	}
	return State{Ready: true, Reason: "RemoteReady", Message: fmt.Sprintf("pods can run in cluster %s", cluster)}, true
}

// heartbeatUnseen reports whether home renews its heartbeat but the agent does not report it as
// connected.
func (h Health) heartbeatUnseen() bool {
	return h.Beats >= missedBeats && meta.IsStatusConditionFalse(h.Home.Status.Conditions, remotev1alpha1.Connected)
}

// failure turns the error of a probe into a word and a sentence.
func failure(cluster string, err error) (reason, sentence string) {
	if apierrors.IsUnauthorized(err) {
		return "NotAuthorized", fmt.Sprintf("cluster %s does not accept the credentials of the kubeconfig: renew them in the Secret", cluster)
	}
	return "RemoteSilent", fmt.Sprintf("cluster %s does not answer: %v", cluster, cause(err))
}

// missing returns a sentence if the error of reading the HomeCluster means that home is not set up
// there, empty if it means something else.
func missing(cluster, homeID string, err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("cluster %s has no HomeCluster %s: its owner makes it (kubectl lodestone peer), or set spec.virtualNode of the "+
			"RemoteCluster to Disabled", cluster, homeID)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the kubeconfig may not read HomeCluster %s of cluster %s: its owner lets it (kubectl lodestone peer), or set "+
			"spec.virtualNode of the RemoteCluster to Disabled", homeID, cluster)
	}
	return ""
}

// probeTimeout limits each request of a probe.
const probeTimeout = 3 * time.Second

// prober probes a remote cluster.
type prober struct {
	client kubernetes.Interface
	remote *clients.RemoteClient
	gate   *clients.Gate
	homeID string
	uid    string // empty until known; only probe uses it
}

// newProber returns a prober with its own connections. They speak HTTP/1.1: a request that times
// out closes its connection, so that a dead one is not used again.
func newProber(s *session.Session) (*prober, error) {
	config := rest.CopyConfig(s.Config)
	config.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of cluster %s: %w", s.Cluster, err)
	}
	remote, err := clients.NewRemoteClient(config)
	if err != nil {
		return nil, err
	}
	return &prober{client: client, remote: remote, gate: s.Gate, homeID: s.HomeID}, nil
}

// ready returns nil if the API server reports that it is ready.
func (p *prober) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// version returns the cluster's Kubernetes version, empty if it cannot be read.
func (p *prober) version(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	raw, err := p.client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	var version apiversion.Info
	if err != nil || json.Unmarshal(raw, &version) != nil {
		return ""
	}
	return short(version.GitVersion)
}

// identity returns the UID of the cluster's namespace kube-system, which identifies a cluster;
// empty if it may not be read, as when home is no tenant.
func (p *prober) identity(ctx context.Context) (string, error) {
	if p.uid != "" {
		return p.uid, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	system, err := p.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	p.uid = string(system.UID)
	return p.uid, nil
}

func (p *prober) home(ctx context.Context) (*remotev1alpha1.HomeCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.remote.HomeClusters().Get(ctx, p.homeID, metav1.GetOptions{})
}

// cause shortens an error to its cause, without the request's address.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", probeTimeout)
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
