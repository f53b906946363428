package crash

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// agentFlows are about what the remote agent does by itself, for a world of it: somebody
// deletes a shadow in west, alone or with its namespace. The provisioner goes on beside.
func agentFlows() []Flow {
	west := places[1]
	mended := func(w *World, c *Case, v *View) error {
		return all(w.bound(v, data, west.cluster), same(c, v), once(c, 2, 1), healed(c, v), cured(v))
	}
	// The agent may take so long for many namespaces at once that west refuses a claim first.
	again := func(ctx context.Context, w *World, _ *Case, v *View) error { return w.schedule(ctx, v, west.node) }
	return []Flow{
		served(Flow{
			Name: "agent-heal", Of: Agent, Few: true, Reads: 4, Want: mended, Play: again, Early: true,
			Act: func(ctx context.Context, w *World, c *Case) error {
				return w.delete(ctx, w.Bed.West, c.before.Backings[0].Namespace, c.before.Backings[0].Name)
			},
		}, west),
		served(Flow{
			// Kubernetes looks for each kind of object several times before a namespace is gone, and
			// the agent looks every two seconds whether it is.
			Name: "agent-heal-namespace", Of: Agent, Few: true, Reads: 4, Play: again, Early: true,
			Act: func(ctx context.Context, w *World, c *Case) error {
				name := c.before.Backings[0].Namespace
				if err := w.Bed.West.Client().CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					return fmt.Errorf("delete namespace %s in west: %w", name, err)
				}
				return nil
			},
			Want: func(w *World, c *Case, v *View) error {
				if err := mended(w, c, v); err != nil {
					return err
				}
				return w.given(v.Backings[0].Namespace, v.Backings[0].Labels[keys.HomeID])
			},
		}, west),
	}
}

// given says what is missing until home may use a namespace of west: the agent says that
// it may, and its rights there are none that go.
func (w *World) given(namespace, homeID string) error {
	request, err := w.Bed.Agents.NamespaceRequests(keys.TenantPrefix+homeID).Get(context.Background(), namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at NamespaceRequest %s: %w", namespace, err)
	}
	if !meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready) {
		return fmt.Errorf("namespace %s is not given: %+v", namespace, request.Status.Conditions)
	}
	bindings, err := w.Bed.West.Client().RbacV1().RoleBindings(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: keys.HomeID + "=" + homeID})
	if err != nil {
		return fmt.Errorf("look at the role bindings of namespace %s: %w", namespace, err)
	}
	if len(bindings.Items) != 1 || bindings.Items[0].DeletionTimestamp != nil {
		return errors.New("home has no rights in the namespace, or they go")
	}
	return nil
}
