package roles

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// Proof is a package whose tests, all together, use rights that the tests of all rights do
// not use. Those excuse these and no others: so each right is used in one place or the other.
type Proof struct {
	where string
	// rights are written as in Excuses, but without the account. Those without a reason must
	// be used in that package, the others need not be, for that reason.
	home, remote map[string]string
}

// Home excuses, elsewhere, the rights of an account at home that the proof is about.
func (p Proof) Home(account string) Excuses { return p.excuses(account, p.home) }

// Remote excuses, elsewhere, the rights of home's account in a remote cluster.
func (p Proof) Remote(account string) Excuses { return p.excuses(account, p.remote) }

func (p Proof) excuses(account string, rights map[string]string) Excuses {
	excuses := Excuses{}
	for right, reason := range rights {
		excuses[account+": "+right] = Sometimes(reason)
		if reason == "" {
			excuses[account+": "+right] = Never("(" + p.where + ")")
		}
	}
	return excuses
}

// Check checks, after the tests, that each right of the proof is there and was used, and
// that nothing was refused to any account of Lodestone that refusedToo does not excuse.
// remoteRole is the ClusterRole that home's account has in the namespaces of the remote
// cluster: those of the tests are gone.
func (p Proof) Check(ctx context.Context, bed *fabric.Fabric, remoteAccount, remoteRole string,
	refusedToo func(fabric.Request) bool) error {
	namespace, name, _ := strings.Cut(remoteAccount, ":")
	if _, err := bed.West.Client().RbacV1().RoleBindings(metav1.NamespaceDefault).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: remoteRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: remoteRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind role %s: %w", remoteRole, err)
	}
	var wrong []string
	for _, at := range []struct {
		cluster *testbed.Cluster
		account string
		rights  map[string]string
	}{{bed.Home, fabric.System + ":lodestone-provisioner", p.home}, {bed.West, remoteAccount, p.remote}} {
		all, err := rightsIn(ctx, at.cluster)
		if err != nil {
			return err
		}
		excused := Excuses{}
		of := Rights(slices.DeleteFunc(all, func(r right) bool {
			reason, ours := at.rights[strings.TrimPrefix(r.String(), at.account+": ")]
			if reason != "" {
				excused[r.String()] = Sometimes(reason)
			}
			return !ours || r.account != at.account
		}))
		if len(of) != len(at.rights) {
			wrong = append(wrong, fmt.Sprintf("of %d rights in %s that are to be used %s has %d: %v", len(at.rights), at.cluster.Name(), at.account,
				len(of), of))
		}
		table, err := of.compare(bed, at.cluster, excused, refusedToo)
		fmt.Println(table)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the rights in deploy/ are not those that are used:\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// Why a right may not be used.
const (
	byServer    = "(a mover that its address does not lead to: e2e/kind)"
	lateContent = "(a group snapshot whose content went before home had marked it)"
	byPolicy    = "(no request: an admission policy asks for it)"
	said        = "(why a mover does not start, said after some seconds)"
)

// rights returns rights that are used, and those that may not be and why; each is written as its verbs, separated by commas, and what they
// are for.
func rights(excused map[string]string, used ...string) map[string]string {
	all := map[string]string{}
	add := func(written, reason string) {
		verbs, what, _ := strings.Cut(written, " ")
		for verb := range strings.SplitSeq(verbs, ",") {
			all[verb+" "+what] = reason
		}
	}
	for written, reason := range excused {
		add(written, reason)
	}
	for _, written := range used {
		add(written, "")
	}
	return all
}

// Moves are the rights that moves of volumes use.
var Moves = Proof{
	where: "a move: e2e/moves",
	home: rights(map[string]string{"get,create pods/portforward in " + fabric.Storage: byServer},
		"get,patch,delete,create pods",
		"get,patch,delete lodestone.dev/volumemoves",
		"update lodestone.dev/volumemoves/status",
		"list snapshot.storage.k8s.io/volumesnapshotclasses",
		"get snapshot.storage.k8s.io/volumesnapshots",
		"get snapshot.storage.k8s.io/volumesnapshotcontents",
		"create pods in "+fabric.Storage,
		"create,delete secrets in "+fabric.Storage,
		"list groupsnapshot.storage.k8s.io/volumegroupsnapshotclasses",
		"get,create,delete groupsnapshot.storage.k8s.io/volumegroupsnapshots in "+fabric.Storage,
	),
	remote: rights(map[string]string{"list events": said, "get,create pods/portforward": byServer},
		"get pods",
		"list storage.k8s.io/volumeattachments",
		"list snapshot.storage.k8s.io/volumesnapshotclasses",
		"get snapshot.storage.k8s.io/volumesnapshotcontents",
		"get,list,watch,create,patch,delete snapshot.storage.k8s.io/volumesnapshots",
		"list groupsnapshot.storage.k8s.io/volumegroupsnapshotclasses",
		"get,create,delete groupsnapshot.storage.k8s.io/volumegroupsnapshots",
	),
}

// Replicas are the rights that replicas use beside those of moves.
var Replicas = Proof{
	where: "a replica: e2e/replicas",
	home: rights(map[string]string{"fence lodestone.dev/remoteclusters": byPolicy, "create pods/exec": overSPDY},
		"get,create,patch lodestone.dev/volumereplicas",
		"create lodestone.dev/volumemoves",
		"update lodestone.dev/volumereplicas/status",
		"get pods/exec",
	),
}

// overSPDY excuses a right that API servers before Kubernetes 1.30 ask for, which take commands over SPDY alone.
const overSPDY = "commands run over a WebSocket, for which later API servers ask for it, too, and note the verb get"

// Snapshots are the rights that VolumeSnapshots of virtual claims use.
var Snapshots = Proof{
	where: "a snapshot: e2e/csi",
	home: rights(map[string]string{"get groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents": lateContent},
		"watch snapshot.storage.k8s.io/volumesnapshots",
		"list,watch,create,patch,delete snapshot.storage.k8s.io/volumesnapshotcontents",
		"patch snapshot.storage.k8s.io/volumesnapshotcontents/status",
		"get snapshot.storage.k8s.io/volumesnapshotclasses",
		"watch groupsnapshot.storage.k8s.io/volumegroupsnapshots",
		"list,watch,patch groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents",
		"patch groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents/status",
		"get groupsnapshot.storage.k8s.io/volumegroupsnapshotclasses",
		"create,delete snapshot.storage.k8s.io/volumesnapshots in "+fabric.Storage,
	),
	remote: rights(nil,
		"get,list,watch,create,patch,delete snapshot.storage.k8s.io/volumesnapshots",
		"get,list,watch,create,patch,delete groupsnapshot.storage.k8s.io/volumegroupsnapshots",
	),
}
