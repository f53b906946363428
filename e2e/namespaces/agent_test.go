package namespaces

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// refusedPrefix begins the names of the namespaces that the played agent gives to
// nobody, refusal is what it says then.
const (
	refusedPrefix = "refused-"
	refusal       = "The owner of this cluster gives namespaces named shop-* only."
)

// agent plays west's remote agent for one home cluster.
type agent struct {
	homeID string
	silent atomic.Bool
	given  map[string]bool
}

// playAgent makes the tenancy of home in west and answers its requests until ctx
// ends.
func playAgent(ctx context.Context) (*agent, error) {
	id, err := bed.HomeID(ctx)
	if err != nil {
		return nil, err
	}
	a := &agent{homeID: id, given: map[string]bool{}}
	client := bed.West.Client()
	if err := bed.West.MakeNamespace(ctx, a.tenant()); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: keys.HomeAccount}}
	if _, err := client.CoreV1().ServiceAccounts(a.tenant()).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make home's account in west: %w", err)
	}
	if err := a.bind(ctx, a.tenant(), "lodestone-home-tenant"); err != nil {
		return nil, err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "home-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lodestone-home-reader"},
		Subjects:   a.subjects(),
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("bind home's reader role in west: %w", err)
	}
	go func() {
		for ctx.Err() == nil {
			a.answer(ctx)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return a, nil
}

func (a *agent) tenant() string { return keys.TenantPrefix + a.homeID }

func (a *agent) kubeconfig(ctx context.Context) ([]byte, error) {
	return bed.West.ServiceAccountKubeconfig(ctx, a.tenant(), keys.HomeAccount)
}

func (a *agent) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.tenant(), Name: keys.HomeAccount}}
}

func (a *agent) bind(ctx context.Context, namespace, role string) error {
	_, err := bed.West.Client().RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   a.subjects(),
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind role %s in namespace %s of west: %w", role, namespace, err)
	}
	return nil
}

// answer answers the requests that are there; what fails is tried the next time.
func (a *agent) answer(ctx context.Context) {
	requests := bed.Agents.NamespaceRequests(a.tenant())
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil || a.silent.Load() {
		return
	}
	asked := map[string]bool{}
	for i := range list.Items {
		request := &list.Items[i]
		asked[request.Name] = true
		if len(request.Status.Conditions) > 0 {
			continue
		}
		condition := metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Given", Message: "The namespace can be used."}
		switch {
		case strings.HasPrefix(request.Name, refusedPrefix):
			condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "NotAllowed", refusal
		case a.give(ctx, request) != nil:
			continue
		}
		meta.SetStatusCondition(&request.Status.Conditions, condition)
		_, _ = requests.UpdateStatus(ctx, request, metav1.UpdateOptions{})
	}
	for name := range a.given {
		if asked[name] {
			continue
		}
		err := bed.West.Client().RbacV1().RoleBindings(name).Delete(ctx, "lodestone-home", metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			delete(a.given, name)
		}
	}
}

// give makes the namespace of a request with home's rights in it.
func (a *agent) give(ctx context.Context, request *remotev1alpha1.NamespaceRequest) error {
	_, err := bed.West.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: request.Name, Labels: map[string]string{keys.HomeID: a.homeID},
		Annotations: map[string]string{keys.MadeFor: a.homeID + "/" + request.Spec.HomeNamespace},
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s of west: %w", request.Name, err)
	}
	a.given[request.Name] = true
	return a.bind(ctx, request.Name, "lodestone-home")
}
