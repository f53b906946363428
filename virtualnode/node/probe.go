package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// probeTimeout bounds each request of a probe.
const probeTimeout = 3 * time.Second

// prober asks a remote cluster how it is.
type prober struct {
	client kubernetes.Interface
	remote *remoteapi.Client
	homeID string
	uid    string // once known; only probe uses it
}

// newProber returns a prober with connections of its own. They speak HTTP/1.1: a
// request that times out closes its connection, so that a dead one is not used
// again.
func newProber(s *session.Session) (*prober, error) {
	config := rest.CopyConfig(s.Config)
	config.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of cluster %s: %w", s.Cluster, err)
	}
	remote, err := remoteapi.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &prober{client: client, remote: remote, homeID: s.HomeID}, nil
}

// ready returns nil if the API server says that it is ready.
func (p *prober) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// version returns the cluster's Kubernetes version, empty if it does not say.
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

// identity returns the UID of the cluster's namespace kube-system, which tells
// clusters apart; empty if it may not be read, as where home is no tenant.
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

// home returns the HomeCluster object of ours.
func (p *prober) home(ctx context.Context) (*remotev1alpha1.HomeCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.remote.HomeClusters().Get(ctx, p.homeID, metav1.GetOptions{})
}

// cause shortens an error to what went wrong, without the request's address.
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
