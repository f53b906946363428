package virtualnodes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestTheProgramHasTheRightsThatItNeedsAndNoOthers(t *testing.T) {
	testbed.Require(t)
	for _, test := range []struct {
		allowed bool
		rights  []string // verb, group/resource[/subresource], namespace, name
	}{
		{allowed: true, rights: []string{
			"create /nodes", "patch /nodes/status", "delete /nodes", "patch /pods default", "patch /pods/status default", "create /pods/eviction default",
			"delete /pods default", "watch /secrets", "watch /configmaps", "watch discovery.k8s.io/endpointslices", "create /serviceaccounts/token default",
			"update coordination.k8s.io/leases kube-node-lease west", "update coordination.k8s.io/leases lodestone-system lodestone-virtualnode",
			"create certificates.k8s.io/certificatesigningrequests", "create authentication.k8s.io/tokenreviews", "create authorization.k8s.io/subjectaccessreviews",
			"patch lodestone.dev/remoteclusters", "update lodestone.dev/remoteclusters/status",
			"get /persistentvolumeclaims default", "get /persistentvolumes",
		}},
		{rights: []string{
			"create /pods default", "update /pods default", "create /pods/exec default", "create /pods/binding default", "get /nodes/proxy", "update /nodes",
			"create /secrets default", "patch /secrets lodestone-system", "delete /secrets default", "patch /configmaps kube-system", "patch /services default",
			"update coordination.k8s.io/leases lodestone-system lodestone-provisioner", "delete coordination.k8s.io/leases kube-node-lease",
			"update certificates.k8s.io/certificatesigningrequests/approval", "approve certificates.k8s.io/signers",
			"create lodestone.dev/remoteclusters", "delete lodestone.dev/remoteclusters", "patch /namespaces", "delete /persistentvolumeclaims default",
			"patch /persistentvolumes", "list /persistentvolumes", "list /persistentvolumeclaims default", "impersonate /users", "bind rbac.authorization.k8s.io/clusterroles",
		}},
	} {
		for _, right := range test.rights {
			assert.Equal(t, test.allowed, may(t, right), right)
		}
	}
}

func may(t *testing.T, right string) bool {
	t.Helper()
	words := append(strings.Fields(right), "", "")
	group, rest, _ := strings.Cut(words[1], "/")
	resource, subresource, _ := strings.Cut(rest, "/")
	review, err := bed.Home.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + fabric.System + ":lodestone-virtualnode",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + fabric.System, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: words[0], Group: group, Resource: resource, Subresource: subresource, Namespace: words[2], Name: words[3]},
		}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.Allowed
}
