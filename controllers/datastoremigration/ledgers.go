package datastoremigration

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources/copier"
)

// ledgers has what was proved in each migration, so that the next step need not prove
// it again. The zero value is ready for use, from several goroutines.
type ledgers struct {
	mu sync.Mutex
	by map[string]migrationLedger // by the name of the migration
}

type migrationLedger struct {
	of     types.UID
	ledger *copier.Ledger
}

// of is that of one migration. One that was created anew under its name has another.
func (l *ledgers) of(dm *migration) *copier.Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string]migrationLedger{}
	}
	if known, ok := l.by[dm.Name]; !ok || known.of != dm.UID {
		if ok {
			known.ledger.Unfollow()
		}
		l.by[dm.Name] = migrationLedger{of: dm.UID, ledger: copier.NewLedger()}
	}
	return l.by[dm.Name].ledger
}

// drop forgets a migration that is gone.
func (l *ledgers) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.by[name]; ok {
		known.ledger.Unfollow()
	}
	delete(l.by, name)
}
