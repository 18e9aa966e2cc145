// A person's desktop, for clients that open a browser by themselves: the browser is person.mjs, and it decides as the
// driver has last said.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export class Desktop {
  constructor() {
    this.home = mkdtempSync(join(process.env.CLIENT_HOME, 'desktop-'));
    // A command in BROWSER cannot have spaces in names, which those of folders may.
    const program = fileURLToPath(new URL('person.mjs', import.meta.url));
    writeFileSync(join(this.home, 'browser'), `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`, { mode: 0o755 });
  }

  /** Says what the person will allow (see Person.decide) from now on; nothing: they decline. */
  decide(allow) {
    const decision = allow ? { allow } : { button: 'Don’t connect' };
    writeFileSync(join(this.home, 'decision.json'), JSON.stringify(decision));
  }

  /** How often the person was asked. */
  visits() {
    try {
      return readFileSync(join(this.home, 'visits'), 'utf8').trim().split('\n').length;
    } catch {
      return 0;
    }
  }

  /** What the environment of a program here is. */
  env() {
    const kept = ['PATH', 'GATEHOUSE_EMAIL', 'GATEHOUSE_PASSWORD', 'NODE_EXTRA_CA_CERTS'];
    return {
      ...Object.fromEntries(kept.filter((k) => process.env[k]).map((k) => [k, process.env[k]])),
      HOME: this.home,
      PERSON_FOLDER: this.home,
      BROWSER: `${join(this.home, 'browser')} %s`,
      NO_COLOR: '1',
    };
  }
}
