package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Reasons why a namespace is not given, besides ReasonNotAllowed.
const (
	ReasonTooMany         = "TooMany"
	ReasonNamespaceExists = "NamespaceExists"
	ReasonTerminating     = "Terminating"
)

// defaultMaximum is how many namespaces a home cluster may have whose owner does not say; the API server writes it down.
const defaultMaximum = 100

// Grant says why a home cluster may not have a namespace for a request, nil if it may. existing is
// the namespace of that name, nil if there is none; count is how many the home cluster has.
func Grant(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest, existing *corev1.Namespace, count int) *Refusal {
	name := request.Name
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return &Refusal{ReasonNotAllowed, fmt.Sprintf("%q is not the name of a namespace: %s.", name, problems[0])}
	}
	if name == corev1.NamespaceDefault || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "lodestone-") {
		return &Refusal{ReasonNotAllowed, "Namespaces named default, kube-… and lodestone-… are never given: use another name, or the " +
			"namespace strategy Suffixed."}
	}
	if existing != nil {
		return grantExisting(home, request, existing)
	}
	if refusal := allow(home, request); refusal != nil {
		return refusal
	}
	switch maximum := int(ptr.Deref(home.Spec.Namespaces.Maximum, defaultMaximum)); {
	case maximum == 0:
		return &Refusal{ReasonTooMany, fmt.Sprintf("No namespace is made here for home cluster %s, and there is no namespace %s that was "+
			"given to it: let the owner of this cluster make one and label it for it, or set spec.namespaces.maximum of HomeCluster %s.",
			home.Name, name, home.Name)}
	case count >= maximum:
		return &Refusal{ReasonTooMany, fmt.Sprintf("Home cluster %s has %d namespaces here, and its owner allows %d: remove one, or "+
			"ask for more.", home.Name, count, maximum)}
	}
	return nil
}

// allow says why a home cluster may not have a namespace of the name of a request, nil if it may.
func allow(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest) *Refusal {
	name, names := request.Name, home.Spec.Namespaces.Names
	own := strings.HasSuffix(name, "-"+home.Name)
	// An ID such as operator, by which many of these names end, gives none of them.
	taken := slices.ContainsFunc(installed, func(pattern string) bool {
		return matches(pattern, name) && (!own || strings.HasPrefix(pattern, "*"))
	})
	switch {
	case slices.Contains(names, name), own && len(names) == 0 && !taken:
		return nil
	case len(names) == 0 && wasGiven(request):
		// It is made again: home may have data that belongs in it.
		return nil
	case len(names) == 0 && !own:
		return &Refusal{ReasonNotAllowed, fmt.Sprintf("The owner of this cluster lists no namespaces for home cluster %s, so it gets only those "+
			"whose names end in -%s: let the owner list %s in spec.namespaces.names of HomeCluster %s, or use the namespace strategy Suffixed.",
			home.Name, home.Name, name, home.Name)}
	case len(names) > 0 && !slices.ContainsFunc(names, func(pattern string) bool { return matches(pattern, name) }):
		return &Refusal{ReasonNotAllowed, fmt.Sprintf("The owner of this cluster gives home cluster %s namespaces named %s only.", home.Name,
			strings.Join(names, ", "))}
	case taken:
		return &Refusal{ReasonNotAllowed, fmt.Sprintf("What is installed in clusters often has a namespace with a name such as %s, so only its "+
			"owner gives it: let the owner of this cluster list that name itself in spec.namespaces.names of HomeCluster %s, or use another.",
			name, home.Name)}
	}
	return nil
}

// wasGiven reports whether the agent has given the namespace of a request before. Only the agent
// writes the status.
func wasGiven(request *remotev1alpha1.NamespaceRequest) bool {
	ready := meta.FindStatusCondition(request.Status.Conditions, remotev1alpha1.Ready)
	return request.Status.HomeNamespaceUID != "" ||
		ready != nil && (ready.Status == metav1.ConditionTrue || ready.Reason == ReasonTerminating)
}

// installed are patterns of names of namespaces that are commonly made when something is installed in a
// cluster. Who has such a namespace before gets what is installed into it later, with its Secrets.
var installed = []string{
	"*-system", "*-operator", "*-operators", "*-controller", "*-controllers", "*-provisioner", "local-path-storage",
	"openshift", "openshift-*", "cattle-*", "fleet-*", "rancher-*", "gke-*", "gmp-*", "aks-*", "eks-*", "amazon-*", "aws-*", "azure-*",
	"google-*", "ibm-*", "tanzu-*", "olm", "operators",
	"istio-*", "linkerd", "linkerd-*", "consul", "knative-*", "projectcontour", "contour", "traefik", "ingress-*", "nginx-*", "haproxy-*",
	"calico-*", "cilium-*", "tigera-*", "kubevirt", "cdi", "liqo", "liqo-*", "admiralty", "submariner-*",
	"cert-manager", "cert-manager-*", "external-dns", "external-secrets", "sealed-secrets", "vault", "vault-*", "gatekeeper-*", "kyverno",
	"falco", "neuvector", "trivy-*", "spire", "spire-*", "dex", "keycloak",
	"argo", "argo-*", "argocd", "flux", "flux-*", "tekton-*", "crossplane", "crossplane-*", "velero", "backup", "harbor",
	"rook-*", "longhorn-*", "openebs", "portworx", "trident", "ceph-*", "csi-*", "nfs-*",
	"monitoring", "logging", "prometheus", "prometheus-*", "grafana", "loki", "tempo", "elastic-*", "opentelemetry-*", "datadog", "keda",
}

// grantExisting says why a home cluster may not have a namespace that exists, nil if it may.
func grantExisting(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest, existing *corev1.Namespace) *Refusal {
	switch {
	case !MadeForHome(existing, home):
		return &Refusal{ReasonNamespaceExists, fmt.Sprintf("Namespace %s exists and was not made for home cluster %s: use another name, or the "+
			"namespace strategy Suffixed.", request.Name, home.Name)}
	case existing.Annotations[keys.MadeFor] != MadeFor(home, request):
		return &Refusal{ReasonNamespaceExists, fmt.Sprintf("Namespace %s was made for another namespace of home cluster %s: delete it here if "+
			"nothing in it is needed.", request.Name, home.Name)}
	case existing.DeletionTimestamp != nil:
		return BeingDeleted(request.Name)
	default:
		return nil
	}
}

// BeingDeleted says that a namespace cannot be given before it is gone.
func BeingDeleted(name string) *Refusal {
	return &Refusal{ReasonTerminating, fmt.Sprintf("Namespace %s is being deleted in this cluster; it is made again when it is gone.", name)}
}

// AnotherNamespace says why a namespace that was made for a home namespace may not be used for the
// one of the same name that a request is for now, nil if it may: they have different UIDs, so that
// the present one may belong to somebody else. Without a recorded UID, or one in the request, they
// count as the same.
func AnotherNamespace(request *remotev1alpha1.NamespaceRequest, existing *corev1.Namespace) *Refusal {
	recorded, now := existing.Annotations[keys.HomeNamespaceUID], string(request.Spec.HomeNamespaceUID)
	if recorded == "" || now == "" || recorded == now {
		return nil
	}
	// Home shows the first 256 bytes.
	return &Refusal{remotev1alpha1.ReasonAnotherNamespace, fmt.Sprintf("Namespace %s is of an earlier home namespace of that name and not "+
		"empty, so nothing new is made in it. Delete at home what is left; or, if home was restored from a backup, let the owner here run "+
		"kubectl lodestone rebind namespace %s.", request.Name, request.Name)}
}

// MadeForHome reports whether a namespace was made for a home cluster, and not for an earlier
// cluster of the same ID.
func MadeForHome(namespace *corev1.Namespace, home *remotev1alpha1.HomeCluster) bool {
	id, _, _ := strings.Cut(namespace.Annotations[keys.MadeFor], "/")
	return namespace.Labels[keys.HomeID] == home.Name && id == home.Name && sameHome(namespace.Annotations, home)
}

// sameHome reports whether an object was made for the same cluster, as far as its UID is known.
func sameHome(annotations map[string]string, home *remotev1alpha1.HomeCluster) bool {
	was := annotations[keys.HomeUID]
	return was == home.Spec.ClusterUID || was == "" || home.Spec.ClusterUID == ""
}

// MadeFor is the annotation of the namespace that is made for a request.
func MadeFor(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest) string {
	return home.Name + "/" + request.Spec.HomeNamespace
}

// matches reports whether a name matches a pattern in which * stands for any characters.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	last := parts[len(parts)-1]
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, last)
}

// Names of the objects that the agent makes; the ClusterRoles are those of deploy/remote.
const (
	NamespacesRole = "lodestone-home"
	TenantRole     = "lodestone-home-tenant"
	ReaderRole     = "lodestone-home-reader"

	// Bounds is the name of the ResourceQuota and the LimitRange of a namespace.
	Bounds = "lodestone"

	podSecurityEnforce = "pod-security.kubernetes.io/enforce"
)

// TenantNamespace returns the name of a home cluster's tenant namespace.
func TenantNamespace(id string) string { return keys.TenantPrefix + id }

// OwnRole is the name of the ClusterRole, and of its binding, that lets a home cluster read its own
// HomeCluster.
func OwnRole(id string) string { return "lodestone-home:" + id }

// ReaderBinding is the name of the binding of ReaderRole, which lets a home cluster read what all
// of them may read.
func ReaderBinding(id string) string { return ReaderRole + ":" + id }

// HomeLabels is the label of all that is made for a home cluster.
func HomeLabels(id string) map[string]string { return map[string]string{keys.HomeID: id} }

// Identity returns the subject that gets the roles of a home cluster, or why nobody does.
func Identity(home *remotev1alpha1.HomeCluster) (rbacv1.Subject, *Refusal) {
	switch home.Spec.User {
	case "":
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: TenantNamespace(home.Name), Name: keys.HomeAccount}, nil
	case keys.HomeUserPrefix + home.Name:
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: home.Spec.User}, nil
	default:
		return rbacv1.Subject{}, &Refusal{"InvalidUser", "spec.user must be " + keys.HomeUserPrefix + home.Name +
			", or empty for a service account: correct it."}
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

// anyClass stands for any storage class, in a HomeCluster and in the annotation of a namespace.
const anyClass = "*"

// Classes returns the storage classes of which claims of a home cluster may be: those that its owner
// lists, else those of virtualclass.ForHomes.
func Classes(home *remotev1alpha1.HomeCluster, byDefault []string) []string {
	if listed := home.Spec.StorageClasses; len(listed) > 0 {
		return slices.Sorted(slices.Values(listed))
	}
	return byDefault
}

// NamespaceAnnotations are the annotations of a namespace that is made for a request; one with an
// empty value is removed. existing is the namespace, nil if there is none; classes are those of
// Classes.
func NamespaceAnnotations(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest, existing *corev1.Namespace,
	classes []string) map[string]string {
	if existing != nil && existing.Labels[keys.ExistingVolumes] == keys.ExistingVolumesAllowed && len(home.Spec.StorageClasses) == 0 {
		// The owner gives volumes that exist to claims of this namespace.
		classes = []string{anyClass}
	}
	types := make([]string, 0, len(home.Spec.ServiceTypes))
	for _, t := range home.Spec.ServiceTypes {
		types = append(types, string(t))
	}
	annotations := map[string]string{
		keys.MadeFor:        MadeFor(home, request),
		keys.ServiceTypes:   strings.Join(types, ","),
		keys.StorageClasses: strings.Join(classes, ","),
	}
	if home.Spec.ClusterUID != "" {
		annotations[keys.HomeUID] = home.Spec.ClusterUID
	}
	if request.Spec.HomeNamespaceUID != "" {
		annotations[keys.HomeNamespaceUID] = string(request.Spec.HomeNamespaceUID)
	}
	return annotations
}

// Quota returns the ResourceQuota of each namespace, nil if there is to be none.
func Quota(home *remotev1alpha1.HomeCluster) *corev1.ResourceQuota {
	if len(home.Spec.Namespaces.Quota) == 0 {
		return nil
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: Bounds, Labels: HomeLabels(home.Name)},
		Spec:       corev1.ResourceQuotaSpec{Hard: home.Spec.Namespaces.Quota},
	}
}

// Limits returns the LimitRange of each namespace, nil if there is to be none.
func Limits(home *remotev1alpha1.HomeCluster) *corev1.LimitRange {
	if len(home.Spec.Namespaces.Limits) == 0 {
		return nil
	}
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: Bounds, Labels: HomeLabels(home.Name)},
		Spec:       corev1.LimitRangeSpec{Limits: home.Spec.Namespaces.Limits},
	}
}

// TenantLabels are the labels of the tenant namespace. No pods run there.
func TenantLabels(home *remotev1alpha1.HomeCluster) map[string]string {
	return map[string]string{keys.Tenant: home.Name, podSecurityEnforce: "restricted"}
}

// TenantAnnotations are the annotations of the tenant namespace.
func TenantAnnotations(home *remotev1alpha1.HomeCluster) map[string]string {
	if home.Spec.ClusterUID == "" {
		return nil
	}
	return map[string]string{keys.HomeUID: home.Spec.ClusterUID}
}

// CheckTenantNamespace says why an existing namespace cannot be the tenant namespace of
// a home cluster, nil if it is.
func CheckTenantNamespace(namespace *corev1.Namespace, home *remotev1alpha1.HomeCluster) *Refusal {
	switch {
	case namespace.Labels[keys.Tenant] != home.Name:
		return &Refusal{ReasonNamespaceExists, "Namespace " + namespace.Name +
			" exists and was not made by the remote agent: delete it, or give the home cluster another ID."}
	case !sameHome(namespace.Annotations, home):
		return &Refusal{"AnotherHome", "Namespace " + namespace.Name +
			" was made for another home cluster of the same ID: give this one another ID, or correct spec.clusterUID."}
	case namespace.DeletionTimestamp != nil:
		return &Refusal{ReasonTerminating, "Namespace " + namespace.Name + " is being deleted; it is made again when it is gone."}
	default:
		return nil
	}
}

// VersionsKept returns the annotations of a namespace by which the API server keeps sealed versions of second copies there even
// against their home cluster, and after what time they change by the clock alone, 0 for never. Admission policies have no clock:
// the agent moves on the moment since which versions stay. While no agent works it stands still, and nothing may go that it keeps.
func VersionsKept(home *remotev1alpha1.HomeCluster, now time.Time) (annotations map[string]string, again time.Duration) {
	age := time.Duration(0)
	if replicas := home.Spec.Replicas; replicas != nil && replicas.MinimumAge != nil {
		age = replicas.MinimumAge.Duration
	}
	if age <= 0 {
		return map[string]string{keys.VersionsKeptFor: "", keys.VersionsKeptSince: ""}, 0
	}
	// Each step writes the namespace, so there are few: a version stays up to one step longer.
	step := min(max(age/48, time.Minute), time.Hour)
	since := now.Add(-age).Truncate(step)
	return map[string]string{keys.VersionsKeptFor: age.String(), keys.VersionsKeptSince: since.UTC().Format(time.RFC3339)},
		since.Add(step + age).Sub(now)
}
