package policy

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Names of what the agent makes; the ClusterRoles are those of deploy/remote.
const (
	NamespacesRole = "lodestone-home"
	TenantRole     = "lodestone-home-tenant"
	ReaderRole     = "lodestone-home-reader"

	// Bounds is the name of the ResourceQuota and the LimitRange of a namespace.
	Bounds = "lodestone"

	podSecurityEnforce = "pod-security.kubernetes.io/enforce"
)

// Tenant returns the name of a home cluster's tenant namespace.
func Tenant(id string) string { return keys.TenantPrefix + id }

// OwnRole is the name of the ClusterRole, and of its binding, that lets a home
// cluster read its own HomeCluster; ReaderBinding lets it read what is common.
func OwnRole(id string) string { return "lodestone-home:" + id }

// ReaderBinding is the name of the binding of ReaderRole.
func ReaderBinding(id string) string { return ReaderRole + ":" + id }

// Mark is the label of all that is made for a home cluster.
func Mark(id string) map[string]string { return map[string]string{keys.HomeID: id} }

// Identity is whom the roles of a home cluster are given to, or why to nobody.
func Identity(home *remotev1alpha1.HomeCluster) (rbacv1.Subject, *Refusal) {
	switch home.Spec.User {
	case "":
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: Tenant(home.Name), Name: keys.HomeAccount}, nil
	case keys.HomeUserPrefix + home.Name:
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: home.Spec.User}, nil
	default:
		return rbacv1.Subject{}, &Refusal{"InvalidUser", "spec.user must be " + keys.HomeUserPrefix + home.Name + ", or empty for a service account: correct it."}
	}
}

// NamespaceLabels are the labels of a namespace that is made for a request.
func NamespaceLabels(home *remotev1alpha1.HomeCluster) map[string]string {
	level := home.Spec.Namespaces.PodSecurity
	if level == "" {
		level = "baseline"
	}
	return map[string]string{keys.HomeID: home.Name, podSecurityEnforce: level}
}

// NamespaceAnnotations are the annotations of a namespace that is made for
// a request; an empty one is taken off.
func NamespaceAnnotations(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest) map[string]string {
	types := make([]string, 0, len(home.Spec.ServiceTypes))
	for _, t := range home.Spec.ServiceTypes {
		types = append(types, string(t))
	}
	annotations := map[string]string{
		keys.MadeFor:      MadeFor(home, request),
		keys.ServiceTypes: strings.Join(types, ","),
	}
	if home.Spec.ClusterUID != "" {
		annotations[keys.HomeUID] = home.Spec.ClusterUID
	}
	return annotations
}

// Quota returns the ResourceQuota of each namespace, nil if there is to be none.
func Quota(home *remotev1alpha1.HomeCluster) *corev1.ResourceQuota {
	if len(home.Spec.Namespaces.Quota) == 0 {
		return nil
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: Bounds, Labels: Mark(home.Name)},
		Spec:       corev1.ResourceQuotaSpec{Hard: home.Spec.Namespaces.Quota},
	}
}

// Limits returns the LimitRange of each namespace, nil if there is to be none.
func Limits(home *remotev1alpha1.HomeCluster) *corev1.LimitRange {
	if len(home.Spec.Namespaces.Limits) == 0 {
		return nil
	}
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: Bounds, Labels: Mark(home.Name)},
		Spec:       corev1.LimitRangeSpec{Limits: home.Spec.Namespaces.Limits},
	}
}

// TenantMark is the labels of the tenant namespace. No pods run there.
func TenantMark(home *remotev1alpha1.HomeCluster) map[string]string {
	return map[string]string{keys.Tenant: home.Name, podSecurityEnforce: "restricted"}
}

// TenantNotes is the annotations of the tenant namespace.
func TenantNotes(home *remotev1alpha1.HomeCluster) map[string]string {
	if home.Spec.ClusterUID == "" {
		return nil
	}
	return map[string]string{keys.HomeUID: home.Spec.ClusterUID}
}

// OwnTenant says why an existing namespace cannot be the tenant namespace of
// a home cluster, nil if it is.
func OwnTenant(namespace *corev1.Namespace, home *remotev1alpha1.HomeCluster) *Refusal {
	switch {
	case namespace.Labels[keys.Tenant] != home.Name:
		return &Refusal{ReasonNamespaceExists, "Namespace " + namespace.Name + " exists and was not made by the remote agent: delete it, or give the home cluster another ID."}
	case !sameHome(namespace.Annotations, home):
		return &Refusal{"AnotherHome", "Namespace " + namespace.Name + " was made for another home cluster of the same ID: give this one another ID, or correct spec.clusterUID."}
	case namespace.DeletionTimestamp != nil:
		return &Refusal{ReasonTerminating, "Namespace " + namespace.Name + " is being deleted; it is made again when it is gone."}
	default:
		return nil
	}
}
