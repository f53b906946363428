package roles

import "github.com/lodestone-storage/lodestone/e2e/fabric"

// Why a right may not be used.
const (
	byServer = "(a mover that its address does not lead to: e2e/kind)"
	said     = "(why a mover does not start, said after some seconds)"
)

// Moves are the rights that moves of volumes use.
var Moves = Proof{
	where: "a move: e2e/moves",
	home: map[string]string{
		"get pods":                                           "",
		"patch pods":                                         "",
		"delete pods":                                        "",
		"get lodestone.dev/volumemoves":                      "",
		"patch lodestone.dev/volumemoves":                    "",
		"delete lodestone.dev/volumemoves":                   "",
		"update lodestone.dev/volumemoves/status":            "",
		"list snapshot.storage.k8s.io/volumesnapshotclasses": "",
		"get snapshot.storage.k8s.io/volumesnapshots":        "",
		"get snapshot.storage.k8s.io/volumesnapshotcontents": "",
		"create pods in " + fabric.Storage:                   "",
		"create secrets in " + fabric.Storage:                "",
		"delete secrets in " + fabric.Storage:                "",
		"get pods/portforward in " + fabric.Storage:          byServer,
		"create pods/portforward in " + fabric.Storage:       byServer,
		"create secrets in " + fabric.System:                 "",
		"get secrets in " + fabric.System:                    "",
		"update secrets in " + fabric.System:                 "",
		"delete secrets in " + fabric.System:                 "",
	},
	remote: map[string]string{
		"get pods":                              "",
		"list events":                           said,
		"get pods/portforward":                  byServer,
		"create pods/portforward":               byServer,
		"list storage.k8s.io/volumeattachments": "",
		"list snapshot.storage.k8s.io/volumesnapshotclasses": "",
		"get snapshot.storage.k8s.io/volumesnapshotcontents": "",
		"get snapshot.storage.k8s.io/volumesnapshots":        "",
		"list snapshot.storage.k8s.io/volumesnapshots":       "",
		"watch snapshot.storage.k8s.io/volumesnapshots":      "",
		"create snapshot.storage.k8s.io/volumesnapshots":     "",
		"patch snapshot.storage.k8s.io/volumesnapshots":      "",
		"delete snapshot.storage.k8s.io/volumesnapshots":     "",
	},
}

// Snapshots are the rights that VolumeSnapshots of virtual claims use.
var Snapshots = Proof{
	where: "a snapshot: e2e/csi",
	home: map[string]string{
		"watch snapshot.storage.k8s.io/volumesnapshots":                       "",
		"list snapshot.storage.k8s.io/volumesnapshotcontents":                 "",
		"watch snapshot.storage.k8s.io/volumesnapshotcontents":                "",
		"create snapshot.storage.k8s.io/volumesnapshotcontents":               "",
		"patch snapshot.storage.k8s.io/volumesnapshotcontents":                "",
		"delete snapshot.storage.k8s.io/volumesnapshotcontents":               "",
		"patch snapshot.storage.k8s.io/volumesnapshotcontents/status":         "",
		"get snapshot.storage.k8s.io/volumesnapshotclasses":                   "",
		"create snapshot.storage.k8s.io/volumesnapshots in " + fabric.Storage: "",
		"delete snapshot.storage.k8s.io/volumesnapshots in " + fabric.Storage: "",
	},
	remote: map[string]string{
		"get snapshot.storage.k8s.io/volumesnapshots":    "",
		"list snapshot.storage.k8s.io/volumesnapshots":   "",
		"watch snapshot.storage.k8s.io/volumesnapshots":  "",
		"create snapshot.storage.k8s.io/volumesnapshots": "",
		"patch snapshot.storage.k8s.io/volumesnapshots":  "",
		"delete snapshot.storage.k8s.io/volumesnapshots": "",
	},
}
