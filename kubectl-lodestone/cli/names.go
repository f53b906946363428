package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Names returns the names of the objects of a kind, sorted; of kinds with a namespace those in it.
func (c *Cluster) Names(ctx context.Context, namespace string, kind Kind) ([]string, error) {
	list, err := c.list(ctx, namespace, kind)
	if err != nil {
		return nil, err
	}
	var names []string
	err = meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err == nil {
			names = append(names, accessor.GetName())
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

func (c *Cluster) list(ctx context.Context, namespace string, kind Kind) (runtime.Object, error) {
	core, apps, all := c.Client.CoreV1(), c.Client.AppsV1(), metav1.ListOptions{}
	switch kind {
	case Claim:
		return core.PersistentVolumeClaims(namespace).List(ctx, all)
	case Volume:
		return core.PersistentVolumes().List(ctx, all)
	case Pod:
		return core.Pods(namespace).List(ctx, all)
	case Deployment:
		return apps.Deployments(namespace).List(ctx, all)
	case StatefulSet:
		return apps.StatefulSets(namespace).List(ctx, all)
	case ReplicaSet:
		return apps.ReplicaSets(namespace).List(ctx, all)
	case DaemonSet:
		return apps.DaemonSets(namespace).List(ctx, all)
	case Job:
		return c.Client.BatchV1().Jobs(namespace).List(ctx, all)
	case Namespace:
		return core.Namespaces().List(ctx, all)
	case Node:
		return core.Nodes().List(ctx, all)
	case Move:
		return c.Moves.In(namespace).List(ctx, all)
	case RemoteCluster:
		return c.Remotes.List(ctx, all)
	}
	return nil, fmt.Errorf("objects of kind %s cannot be listed", kind)
}

// Missing returns the sentence that there is no object of this kind and name, with the names of those
// that there are, or if these cannot be listed how they are shown.
func (c *Cluster) Missing(ctx context.Context, kind Kind, namespace, name string) error {
	in := ""
	if namespace != "" {
		in = fmt.Sprintf(" in namespace %q", namespace)
	}
	what := kind.Noun()
	names, err := c.Names(ctx, namespace, kind)
	switch {
	case err != nil:
		return fmt.Errorf("there is no %s %q%s: %s lists them", what, name, in, listing(kind, namespace))
	case len(names) == 0 && kind == RemoteCluster:
		return fmt.Errorf("there is no %s %q, nor any other: kubectl lodestone peer makes one", what, name)
	case len(names) == 0 && namespace != "":
		found, err := c.namespace(ctx, namespace)
		switch {
		case err != nil:
			return err
		case found != nil && found.DeletionTimestamp != nil:
			return fmt.Errorf("there is no %s %q%s, which is being deleted: kubectl lodestone why namespace/%s says what it waits for",
				what, name, in, namespace)
		}
		return fmt.Errorf("there is no %s %q%s, nor any other: give -n or --context if it is elsewhere", what, name, in)
	case len(names) == 0:
		return fmt.Errorf("there is no %s %q, nor any other", what, name)
	}
	return fmt.Errorf("there is no %s %q%s; there %s", what, name, in, ThereAre(names, name, listing(kind, namespace)))
}

// RequireNamespace returns an error if there is no such namespace. Of one that the user may not read nothing is known.
func (c *Cluster) RequireNamespace(ctx context.Context, name string) error {
	_, err := c.namespace(ctx, name)
	return err
}

// namespace returns a namespace, nil if the user may not read it, or an error if there is none.
func (c *Cluster) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, c.Missing(ctx, Namespace, "", name)
	case apierrors.IsForbidden(err):
		return nil, nil //nolint:nilnil // what cannot be read is neither there nor missing
	case err != nil:
		return nil, c.Explain("get namespace "+name, err)
	}
	return namespace, nil
}

// listing is the command that lists the objects of a kind.
func listing(kind Kind, namespace string) string {
	switch {
	case kind == RemoteCluster:
		return "kubectl lodestone status"
	case kind == Move:
		return "kubectl lodestone move status -n " + namespace
	case namespace != "":
		return fmt.Sprintf("kubectl get %s -n %s", kind, namespace)
	}
	return "kubectl get " + string(kind)
}

// mostNames is how many names a sentence has.
const mostNames = 8

// ThereAre goes on with the sentence that there is no such name: it lists those that there are, of many those that are most like
// the one that was typed, and then the command that lists all.
func ThereAre(names []string, typed, listing string) string {
	if len(names) == 1 {
		return "is: " + names[0]
	}
	text := "are: " + strings.Join(nearest(names, typed, mostNames), ", ")
	if more := len(names) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more (%s)", more, listing)
	}
	return text
}

// RequireCluster returns an error if a name given by a user is neither home nor that of a
// RemoteCluster. A user who may not read RemoteClusters is not stopped: the provisioner knows.
func (c *Cluster) RequireCluster(ctx context.Context, name string) error {
	if name == keys.Home {
		return nil
	}
	_, err := c.Remotes.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		if served, unknown := c.Serves(v1alpha1.GroupVersion.String(), "remoteclusters"); unknown == nil && !served {
			return c.NotInstalled()
		}
		return c.Missing(ctx, RemoteCluster, "", name)
	}
	return c.Explain("get RemoteCluster "+name, err)
}

// NotInstalled is the error for a cluster without Lodestone.
func (c *Cluster) NotInstalled() error {
	return fmt.Errorf("Lodestone is not installed in the cluster of context %q: install it there (docs/install.md), or choose "+
		"another --context", c.Context)
}
