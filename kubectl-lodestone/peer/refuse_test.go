package peer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestDecideRefuses(t *testing.T) {
	going := metav1.NewTime(time.Unix(1, 0))
	for name, test := range map[string]struct {
		options   Options
		situation func(*Situation)
		says      string
		code      outcome.Code
	}{
		"a cluster with itself": {
			situation: func(s *Situation) { s.RemoteUID = homeUID },
			says:      "same cluster", code: outcome.Refused,
		},
		"an ID that the provisioner does not use": {
			options:   Options{HomeID: "munich"},
			situation: func(s *Situation) { s.ProvisionerID = "berlin" },
			says:      "leave out --home-id", code: outcome.Refused,
		},
		"an ID that is too long": {
			situation: func(s *Situation) { s.ProvisionerID = "a-very-long-name-of-a-cluster-in-a-far-country" },
			says:      "shorter --cluster-id", code: outcome.Refused,
		},
		"a second name for one cluster": {
			options:   Options{Name: "occident"},
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, nil)} },
			says:      `is peered already, as "west"`, code: outcome.Refused,
		},
		"one name for two clusters": {
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", eastUID, nil)} },
			says:      "another cluster than that of context", code: outcome.Refused,
		},
		"a RemoteCluster that leads nobody knows where": {
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", "", nil)} },
			says:      "nobody has found out", code: outcome.Refused,
		},
		"a RemoteCluster that is being removed": {
			situation: func(s *Situation) {
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) { r.DeletionTimestamp = &going })}
			},
			says: "being removed", code: outcome.Refused,
		},
		"volumes in namespaces made by hand": {
			situation: func(s *Situation) {
				s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) {
					r.Annotations, r.Status.Volumes = nil, 3
				})}
			},
			says: "made by hand", code: outcome.Refused,
		},
		"another strategy": {
			options:   Options{Strategy: "Suffixed"},
			situation: func(s *Situation) { s.Remotes = []v1alpha1.RemoteCluster{remoteCluster("west", westUID, nil)} },
			says:      "cannot be changed", code: outcome.Refused,
		},
		"another home of the same ID": {
			situation: func(s *Situation) { s.Homes = []remotev1alpha1.HomeCluster{homeCluster("11111111", eastUID)} },
			says:      "two homes cannot share an ID", code: outcome.Refused,
		},
		"this home under another ID": {
			situation: func(s *Situation) { s.Homes = []remotev1alpha1.HomeCluster{homeCluster("berlin", homeUID)} },
			says:      "by another ID", code: outcome.Refused,
		},
		"a HomeCluster that is being removed": {
			situation: func(s *Situation) {
				h := homeCluster("11111111", homeUID)
				h.DeletionTimestamp = &going
				s.Homes = []remotev1alpha1.HomeCluster{h}
			},
			says: "being removed", code: outcome.Refused,
		},
		"a context whose name cannot be a cluster's": {
			situation: func(s *Situation) { s.RemoteContext = "admin@west" },
			says:      "--name", code: outcome.Usage,
		},
		"to renew nothing": {
			options: Options{Renew: true},
			says:    "without --renew", code: outcome.Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Namespace = "lodestone-system"
			_, err := Decide(test.options, situation(test.situation))
			require.ErrorContains(t, err, test.says)
			assert.Equal(t, test.code, outcome.Of(err))
		})
	}
}
