package kind

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// customers is a Service that leads to the database, and a pod at home that writes to
// it all the time, a row a connection. Of each row that was confirmed it notes when, in
// seconds since its machine was started, and the number; of each that was refused also why.
const customers = `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: pg}
spec: {selector: {app: pg}, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: customer}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  terminationGracePeriodSeconds: 0
  containers:
  - name: customer
    image: %[2]s
    command:
    - sh
    - -c
    - |
      export PATH=/usr/lib/postgresql/15/bin:$PATH PGCONNECT_TIMEOUT=2
      ask() { timeout 10 psql -X -q -A -t -h pg -U postgres -d postgres -v ON_ERROR_STOP=1 -c "$1"; }
      until ask "CREATE TABLE IF NOT EXISTS orders (n bigint PRIMARY KEY, what text)"; do sleep 0.2; done
      n=0
      while :; do
        n=$((n+1))
        if ask "INSERT INTO orders VALUES ($n, repeat('x', 2000))" 2>/tmp/refused; then
          read -r up idle </proc/uptime
          echo "$up $n" >>/tmp/confirmed
        else
          read -r up idle </proc/uptime
          echo "$up $n $(tail -n1 /tmp/refused)" >>/tmp/refusals
          sleep 0.05
        fi
      done
`

// applyExample applies a file of deploy/examples in a namespace of home, and the manifest of a customer with it. Of other words, by
// twos, the second one takes the place of the first.
func applyExample(t *testing.T, namespace, file, customer string, words ...string) {
	t.Helper()
	example, err := os.ReadFile(filepath.Join("..", "..", "deploy", "examples", file))
	require.NoError(t, err)
	manifests := strings.NewReplacer(words...).Replace(string(example)) + "---\n" + customer
	_, err = home.try(t.Context(), manifests, "apply", "--validate=strict", "-n", namespace, "-f", "-")
	require.NoError(t, err)
}

// confirmed is a row that the database has confirmed.
type confirmed struct {
	at  float64
	row int
}

// confirmedRows returns the rows that the customer of a namespace had confirmed so far.
func confirmedRows(t *testing.T, namespace string) []confirmed {
	t.Helper()
	var rows []confirmed
	for line := range strings.Lines(shell(t, namespace, "customer", "cat /tmp/confirmed 2>/dev/null || true")) {
		var c confirmed
		if _, err := fmt.Sscan(line, &c.at, &c.row); err != nil {
			break // the last one is being written
		}
		rows = append(rows, c)
	}
	return rows
}

// awaitRows waits until so many more rows are confirmed than there were.
func awaitRows(t *testing.T, namespace string, more int) {
	t.Helper()
	before := len(confirmedRows(t, namespace))
	eventually(t, "the customer's rows are confirmed", func(c *assert.CollectT) {
		assert.Greater(c, len(confirmedRows(t, namespace)), before+more)
	})
}

// noticeable is how long rows must fail to come for a customer to call it a gap: more
// than one connection that was not answered in time, which a busy machine brings about.
const noticeable = 3 * time.Second

// gaps returns the times without a confirmed row that are noticeable and in which rows
// were refused, from the row of a number on. A disk that is slow refuses none.
func gaps(rows []confirmed, since int) (found []time.Duration) {
	for i := range rows {
		if i == 0 || rows[i].row <= since || rows[i].row == rows[i-1].row+1 {
			continue
		}
		if waited := time.Duration((rows[i].at - rows[i-1].at) * float64(time.Second)); waited >= noticeable {
			found = append(found, waited.Round(10*time.Millisecond))
		}
	}
	return found
}

// tellRefusals logs why rows were refused from the row of a number on: each reason when
// it was met first and last, in seconds, and how often.
func tellRefusals(t *testing.T, namespace string, since int) {
	t.Helper()
	type met struct {
		first, last float64
		times       int
	}
	reasons := map[string]*met{}
	for line := range strings.Lines(shell(t, namespace, "customer", "cat /tmp/refusals 2>/dev/null || true")) {
		at, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, why, _ := strings.Cut(rest, " ")
		when, errWhen := strconv.ParseFloat(at, 64)
		row, errRow := strconv.Atoi(number)
		if errWhen != nil || errRow != nil || row <= since {
			continue
		}
		if reasons[why] == nil {
			reasons[why] = &met{first: when}
		}
		reasons[why].last = when
		reasons[why].times++
	}
	for why, m := range reasons {
		t.Logf("refused %d times from %.2f to %.2f: %s", m.times, m.first, m.last, why)
	}
}

// requireAllRows checks that each confirmed row is in the database.
func requireAllRows(t *testing.T, namespace string) {
	t.Helper()
	rows := confirmedRows(t, namespace)
	have := map[int]bool{}
	for line := range strings.Lines(shell(t, namespace, "customer",
		`/usr/lib/postgresql/15/bin/psql -X -q -A -t -h pg -U postgres -d postgres -c "SELECT n FROM orders"`)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		have[n] = true
	}
	for _, c := range rows {
		require.True(t, have[c.row], "row %d was confirmed and is lost", c.row)
	}
	t.Logf("all of %d confirmed rows are there", len(rows))
}

// lastRow is the number of the last confirmed row.
func lastRow(rows []confirmed) int {
	if len(rows) == 0 {
		return 0
	}
	return rows[len(rows)-1].row
}
