package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestWhoMayWorkInANamespaceMayMoveItsVolumes(t *testing.T) {
	apply(t, "base")
	namespace := testbed.Namespace(t, cluster)
	for _, role := range []string{"view", "edit", "admin"} {
		_, err := cluster.Client().RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: role}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		works := role != "view"
		check(t, namespace, role, []right{
			{verb: "get", resource: "lodestone.dev/volumemoves", namespace: namespace, allowed: true},
			{verb: "watch", resource: "lodestone.dev/volumemoves", namespace: namespace, allowed: true},
			{verb: "create", resource: "lodestone.dev/volumemoves", namespace: namespace, allowed: works},
			{verb: "patch", resource: "lodestone.dev/volumemoves", namespace: namespace, allowed: works},
			{verb: "delete", resource: "lodestone.dev/volumemoves", namespace: namespace, allowed: works},
			{verb: "update", resource: "lodestone.dev/volumemoves/status", namespace: namespace},
			{verb: "create", resource: "lodestone.dev/volumemoves", namespace: "default"},
			{verb: "get", resource: "lodestone.dev/remoteclusters"},
		})
	}
}
