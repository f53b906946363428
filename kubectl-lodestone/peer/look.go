package peer

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// virtualNode is the name of the Deployment that runs pods in remote clusters.
const virtualNode = "lodestone-virtualnode"

// look reads what both clusters hold.
func (p *peering) look(ctx context.Context) (s Situation, err error) {
	s.HomeContext, s.RemoteContext = p.home.Context, p.remote.Context
	if s.HomeUID, err = p.home.UID(ctx); err != nil {
		return s, err
	}
	if s.RemoteUID, err = p.remote.UID(ctx); err != nil {
		return s, err
	}
	p.homeUID, p.remoteUID = s.HomeUID, s.RemoteUID
	if s.HomeUID == s.RemoteUID {
		return s, nil // nothing else matters
	}
	if err := p.installed(); err != nil {
		return s, err
	}
	remotes, err := p.home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, p.home.Explain("list RemoteClusters", err)
	}
	s.Remotes = remotes.Items
	homes, err := p.remote.Remote.HomeClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, p.remote.Explain("list HomeClusters", err)
	}
	s.Homes = homes.Items
	// Only for a note: home need not be a remote cluster of anybody.
	if guests, err := p.home.Remote.HomeClusters().List(ctx, metav1.ListOptions{}); err == nil {
		s.Guests = guests.Items
	}
	s.ProvisionerID, err = p.home.ProvisionerID(ctx, p.Namespace)
	return s, err
}

// installed checks that each cluster has its part of Lodestone.
func (p *peering) installed() error {
	ok, err := p.home.Serves(v1alpha1.GroupVersion.String(), "remoteclusters")
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("Lodestone is not installed in the home cluster (context %q): install it there first, kubectl --context %s apply -k deploy/overlays/release", p.home.Context, p.home.Context)
	}
	ok, err = p.remote.Serves(remotev1alpha1.GroupVersion.String(), "homeclusters")
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("the remote agent is not installed in the cluster of context %q: its owner installs it first, kubectl --context %s apply -k deploy/remote", p.remote.Context, p.remote.Context)
	}
	return nil
}

// readSecret returns the peering's Secret, nil if there is none.
func (p *peering) readSecret(ctx context.Context, plan Plan) (*corev1.Secret, error) {
	secret, err := p.home.Client.CoreV1().Secrets(plan.Secret.Namespace).Get(ctx, plan.Secret.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && p.DryRun == "client":
		return nil, nil
	case err != nil:
		return nil, p.home.Explain("get Secret "+plan.Secret.Namespace+"/"+plan.Secret.Name, err)
	}
	return secret, nil
}

// mayAll checks all rights before anything is written, so that nothing is left
// half done for the want of one.
func (p *peering) mayAll(ctx context.Context, plan Plan) error {
	home := []access.Right{
		{Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "remoteclusters"},
		{Verb: "update", Group: v1alpha1.GroupVersion.Group, Resource: "remoteclusters"},
		{Verb: "create", Resource: "secrets", Namespace: plan.Secret.Namespace},
		{Verb: "update", Resource: "secrets", Namespace: plan.Secret.Namespace},
	}
	remote := []access.Right{
		{Verb: "create", Group: remotev1alpha1.GroupVersion.Group, Resource: "homeclusters"},
		{Verb: "update", Group: remotev1alpha1.GroupVersion.Group, Resource: "homeclusters"},
	}
	if plan.Auth == Certificate {
		remote = append(remote,
			access.Right{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
			access.Right{Verb: "get", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"})
	} else {
		remote = append(remote, access.Right{Verb: "create", Resource: "serviceaccounts/token", Namespace: plan.Tenant()})
	}
	var sentences []string
	for _, side := range []struct {
		cluster *access.Cluster
		rights  []access.Right
	}{{p.home, home}, {p.remote, remote}} {
		lacking, err := side.cluster.Lacking(ctx, side.rights...)
		if err != nil {
			return err
		}
		var names []string
		for _, right := range lacking {
			names = append(names, right.String())
		}
		if len(names) > 0 {
			sentences = append(sentences, fmt.Sprintf("in the cluster of context %q: %s", side.cluster.Context, strings.Join(names, ", ")))
		}
	}
	if len(sentences) > 0 {
		return fmt.Errorf("you lack rights that peering needs, so nothing was changed; ask for them, or let an administrator run this command: %s", strings.Join(sentences, "; "))
	}
	return nil
}
