package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Reasons why a namespace is not given, besides ReasonNotAllowed.
const (
	ReasonTooMany         = "TooMany"
	ReasonNamespaceExists = "NamespaceExists"
	ReasonTerminating     = "Terminating"
)

// Grant says why a namespace may not be given to a home cluster for a request,
// nil if it may. existing is the namespace of that name, nil if there is none;
// count is how many the home cluster has.
func Grant(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest, existing *corev1.Namespace, count int) *Refusal {
	name := request.Name
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return &Refusal{ReasonNotAllowed, fmt.Sprintf("%q is not the name of a namespace: %s.", name, problems[0])}
	}
	if name == corev1.NamespaceDefault || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "lodestone-") {
		return &Refusal{ReasonNotAllowed, "Namespaces named default, kube-… and lodestone-… are never given: use another name, or the namespace strategy Suffixed."}
	}
	if existing != nil {
		return take(home, request, existing)
	}
	names := home.Spec.Namespaces.Names
	if len(names) > 0 && !slices.ContainsFunc(names, func(pattern string) bool { return matches(pattern, name) }) {
		return &Refusal{ReasonNotAllowed, fmt.Sprintf("The owner of this cluster gives home cluster %s namespaces named %s only.", home.Name, strings.Join(names, ", "))}
	}
	if maximum := int(home.Spec.Namespaces.Maximum); count >= maximum {
		return &Refusal{ReasonTooMany, fmt.Sprintf("Home cluster %s has %d namespaces here, and its owner allows %d: remove one, or ask for more.", home.Name, count, maximum)}
	}
	return nil
}

// take says why a namespace that exists may not be given.
func take(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest, existing *corev1.Namespace) *Refusal {
	switch {
	case !Made(existing, home):
		return &Refusal{ReasonNamespaceExists, fmt.Sprintf("Namespace %s exists and was not made for home cluster %s: use another name, or the namespace strategy Suffixed.", request.Name, home.Name)}
	case existing.Annotations[keys.MadeFor] != MadeFor(home, request):
		return &Refusal{ReasonNamespaceExists, fmt.Sprintf("Namespace %s was made for another namespace of home cluster %s: delete it here if nothing in it is needed.", request.Name, home.Name)}
	case existing.DeletionTimestamp != nil:
		return &Refusal{ReasonTerminating, fmt.Sprintf("Namespace %s is being deleted in this cluster; it is made again when it is gone.", request.Name)}
	default:
		return nil
	}
}

// Made reports whether a namespace was made for a home cluster, and not for an
// earlier one of the same ID.
func Made(namespace *corev1.Namespace, home *remotev1alpha1.HomeCluster) bool {
	id, _, _ := strings.Cut(namespace.Annotations[keys.MadeFor], "/")
	return namespace.Labels[keys.HomeID] == home.Name && id == home.Name && sameHome(namespace.Annotations, home)
}

// sameHome reports whether what was made earlier was for the same cluster, as
// far as that is known.
func sameHome(annotations map[string]string, home *remotev1alpha1.HomeCluster) bool {
	was := annotations[keys.HomeUID]
	return was == home.Spec.ClusterUID || was == "" || home.Spec.ClusterUID == ""
}

// MadeFor is the annotation of the namespace that is made for a request.
func MadeFor(home *remotev1alpha1.HomeCluster, request *remotev1alpha1.NamespaceRequest) string {
	return home.Name + "/" + request.Spec.HomeNamespace
}

// matches reports whether a name is of a pattern, where * stands for any
// characters.
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
