package peer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ensureHomeCluster makes the HomeCluster in the remote cluster, or changes it
// to what the flags say.
func (p *peering) ensureHomeCluster(ctx context.Context, plan Plan) error {
	want, homes := plan.homeCluster(p.Options, p.homeUID), p.remote.Remote.HomeClusters()
	var err error
	switch {
	case plan.Home == nil:
		if _, err = homes.Create(ctx, want, metav1.CreateOptions{}); err == nil {
			p.Say("made HomeCluster %q in the cluster of context %q", want.Name, p.remote.Context)
		}
	case !equality.Semantic.DeepEqual(plan.Home.Spec, want.Spec):
		if _, err = homes.Update(ctx, want, metav1.UpdateOptions{}); err == nil {
			p.Say("changed HomeCluster %q in the cluster of context %q", want.Name, p.remote.Context)
		}
	}
	return p.remote.Explain("write HomeCluster "+want.Name, err)
}

// awaitHomeCluster waits until the remote agent has made home's identity.
func (p *peering) awaitHomeCluster(ctx context.Context, plan Plan) error {
	what := fmt.Sprintf("HomeCluster %q in the cluster of context %q to be Ready", plan.HomeID, p.remote.Context)
	return p.Await(ctx, what, func(ctx context.Context) (string, bool, error) {
		home, err := p.remote.Remote.HomeClusters().Get(ctx, plan.HomeID, metav1.GetOptions{})
		if err != nil {
			return patient(p.remote.Explain("get HomeCluster "+plan.HomeID, err))
		}
		ready := meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.Ready)
		if ready == nil {
			return "the remote agent has not looked at it yet; if this lasts, see whether it runs there (kubectl get pods -n lodestone-remote)", false, nil
		}
		// An older generation's verdict says nothing of this one.
		current := ready.ObservedGeneration == 0 || ready.ObservedGeneration >= home.Generation
		return ready.Message, current && ready.Status == metav1.ConditionTrue, nil
	})
}

// patient makes of an error during a wait what Await takes: an API server that
// is away for a moment is waited for, an answer that will stay is not.
func patient(err error) (string, bool, error) {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "", false, err
	}
	return err.Error(), false, nil
}

// ensureRemoteCluster makes the RemoteCluster at home, or changes it to what the
// flags say.
func (p *peering) ensureRemoteCluster(ctx context.Context, plan Plan) error {
	want := plan.remoteCluster(p.Options, p.remoteUID)
	var err error
	switch {
	case plan.Remote == nil:
		if _, err = p.home.Remotes.Create(ctx, want, metav1.CreateOptions{}); err == nil {
			p.Say("made %s", called(want.Name))
		}
	case !equality.Semantic.DeepEqual(plan.Remote.Spec, want.Spec) || plan.Remote.Annotations[keys.ClusterUID] != want.Annotations[keys.ClusterUID]:
		if _, err = p.home.Remotes.Update(ctx, want, metav1.UpdateOptions{}); err == nil {
			p.Say("changed %s", called(want.Name))
		}
	}
	return p.home.Explain("write "+called(want.Name), err)
}

// awaitRemoteCluster waits until home's provisioner uses the remote cluster.
func (p *peering) awaitRemoteCluster(ctx context.Context, plan Plan) error {
	return p.Await(ctx, called(plan.Name)+" to be Ready", func(ctx context.Context) (string, bool, error) {
		remote, err := p.home.Remotes.Get(ctx, plan.Name, metav1.GetOptions{})
		if err != nil {
			return patient(p.home.Explain("get "+called(plan.Name), err))
		}
		ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		if ready == nil {
			return fmt.Sprintf("the provisioner has not looked at it yet; if this lasts, see whether it runs (kubectl get pods -n %s)", p.Namespace), false, nil
		}
		current := ready.ObservedGeneration == 0 || ready.ObservedGeneration >= remote.Generation
		return ready.Message, current && ready.Status == metav1.ConditionTrue, nil
	})
}

// awaitNode waits for the virtual node where Lodestone's own program makes it.
func (p *peering) awaitNode(ctx context.Context, plan Plan) error {
	if plan.remoteCluster(p.Options, p.remoteUID).Spec.VirtualNode == v1alpha1.VirtualNodeDisabled {
		return nil
	}
	_, err := p.home.Client.AppsV1().Deployments(p.Namespace).Get(ctx, virtualNode, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		p.Say("no virtual node is awaited: Lodestone's program for them is not installed at home, and other nodes may stand for %q", plan.Name)
		return nil
	}
	return p.Await(ctx, fmt.Sprintf("virtual node %q to be Ready", plan.Name), func(ctx context.Context) (string, bool, error) {
		node, err := p.home.Client.CoreV1().Nodes().Get(ctx, plan.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("it does not exist yet; if this lasts, see the log of %s in namespace %s", virtualNode, p.Namespace), false, nil
		case apierrors.IsForbidden(err):
			p.Say("whether virtual node %q is Ready cannot be seen: you may not get nodes", plan.Name)
			return "", true, nil
		case err != nil:
			return patient(p.home.Explain("get node "+plan.Name, err))
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Message, condition.Status == corev1.ConditionTrue, nil
			}
		}
		return "", false, nil
	})
}
