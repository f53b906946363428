package copies

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Secret returns the copy of a Secret.
func (p Place) Secret(home *corev1.Secret) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: p.meta(home.Name, home.UID), Data: home.Data, Type: home.Type, Immutable: home.Immutable}
}

// Token returns the Secret named name with a home API token of a pod: the same
// keys as in the volume with which pods get one where they are at home.
func (p Place) Token(name string, pod *corev1.Pod, token, authority string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: p.meta(name, pod.UID),
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			corev1.ServiceAccountTokenKey:     []byte(token),
			corev1.ServiceAccountRootCAKey:    []byte(authority),
			corev1.ServiceAccountNamespaceKey: []byte(pod.Namespace),
		},
	}
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// proof is the beginning of each JSON patch of a Secret: without reading, and so
// without the right to read, it lets the patch fail on a Secret that is not the
// copy of that home object.
func proof(homeID string, home types.UID) []operation {
	label := func(key string) string { return "/metadata/labels/" + strings.ReplaceAll(key, "/", "~1") }
	return []operation{
		{Op: "test", Path: label(keys.HomeID), Value: homeID},
		{Op: "test", Path: label(keys.Reflected), Value: string(home)},
	}
}

// ProofPatch returns a JSON patch that changes nothing, and succeeds only on the
// copy of the home object with the given UID.
func ProofPatch(homeID string, home types.UID) ([]byte, error) {
	return encode(proof(homeID, home))
}

// SecretPatch returns a JSON patch that brings the copy of a home Secret in step
// and fails on any other Secret.
func SecretPatch(want *corev1.Secret) ([]byte, error) {
	owners := want.OwnerReferences
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	data := want.Data
	if data == nil {
		data = map[string][]byte{}
	}
	immutable := want.Immutable != nil && *want.Immutable
	return encode(append(proof(want.Labels[keys.HomeID], types.UID(want.Labels[keys.Reflected])),
		operation{Op: "add", Path: "/metadata/ownerReferences", Value: owners},
		operation{Op: "add", Path: "/data", Value: data},
		operation{Op: "add", Path: "/immutable", Value: immutable},
	))
}

func encode(operations []operation) ([]byte, error) {
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return patch, nil
}
