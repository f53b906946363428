// Package namespaces maps namespaces of the home cluster to namespaces of
// remote clusters.
package namespaces

import "github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"

// Remote returns the namespace of a remote cluster that belongs to a home
// namespace.
func Remote(strategy v1alpha1.NamespaceStrategy, namespace, homeID string) string {
	if strategy == v1alpha1.Suffixed {
		return namespace + "-" + homeID
	}
	return namespace
}
