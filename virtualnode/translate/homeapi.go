package translate

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// homeAPI has the containers of a pod that has a token of home's API find home's API server, at the given URL,
// where clients in pods look for it: in the variables that a kubelet would set, and by name where the host is an address.
// What a container sets itself stays.
func homeAPI(pod *corev1.Pod, spec *corev1.PodSpec, server string) {
	at, err := url.Parse(server)
	if err != nil || at.Hostname() == "" || pod.Annotations[keys.Token] == "" {
		return
	}
	port := cmp.Or(at.Port(), "443")
	variables := []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: at.Hostname()},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
	}
	eachContainer(spec, func(c *corev1.Container) {
		// First, so that the container's own variables can refer to them.
		c.Env = slices.Concat(slices.DeleteFunc(slices.Clone(variables), func(v corev1.EnvVar) bool {
			return slices.ContainsFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == v.Name })
		}), c.Env)
	})
	if _, err := netip.ParseAddr(at.Hostname()); err == nil {
		spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{IP: at.Hostname(), Hostnames: []string{
			"kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local"}})
	}
}
