/** SQL that reads what the database knows of a table. */

/** What the columns of a table are, as one number: another one once a column was added, dropped, renamed or given another type. */
export const shapeOf = (oid: string): string => `(
    select pg_catalog.hashtextextended(
      pg_catalog.string_agg(pg_catalog.concat_ws(' ', a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attgenerated, a.attidentity), ',' order by a.attnum), 0)
    from pg_catalog.pg_attribute a where a.attrelid = ${oid} and a.attnum > 0 and not a.attisdropped
  )`

/**
 * $1 a table's escaped name -> { catalog }: JSON as text, or no row when there is no such relation.
 *
 * `types` holds every type that a column reaches through domains and arrays, `ordered` where `order by` can use its own operator class or that
 * of a type it passes for (an array where its element is, a domain as what it is over), `fitsTime` where an assignment takes now(); `indexes` the unique ones, each key
 * with the equality operator of its operator class, so that a type whose schema is off the search path still works.
 */
export const readCatalog = `
with recursive relation as (
  select c.oid, c.relkind from pg_catalog.pg_class c where c.oid = pg_catalog.to_regclass($1)
), attribute as (
  select a.* from pg_catalog.pg_attribute a join relation r on a.attrelid = r.oid where a.attnum > 0 and not a.attisdropped
), reached (oid) as (
  select atttypid from attribute
  union
  select next.oid from reached
  join pg_catalog.pg_type y on y.oid = reached.oid
  cross join lateral (values (y.typbasetype), (case when y.typcategory = 'A' then y.typelem end)) next (oid)
  where next.oid <> 0
)
select pg_catalog.json_build_object(
  'oid', r.oid::text,
  'shape', ${shapeOf('r.oid')}::text,
  'kind', r.relkind::text,
  'columns', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', a.attname,
      'type', pg_catalog.format_type(a.atttypid, a.atttypmod),
      'oid', a.atttypid::text,
      'typmod', a.atttypmod,
      'generated', a.attgenerated::text,
      'identity', a.attidentity::text
    ) order by a.attnum), '[]')
    from attribute a
  ),
  'types', (
    select pg_catalog.json_object_agg(y.oid::text, pg_catalog.json_build_object(
      'name', y.typname,
      'schema', n.nspname,
      'kind', y.typtype::text,
      'category', y.typcategory::text,
      'typmod', y.typtypmod,
      'base', y.typbasetype::text,
      'element', y.typelem::text,
      'delimiter', y.typdelim::text,
      'ordered', y.typtype in ('e', 'r', 'm', 'c') or exists (
        select from pg_catalog.pg_opclass k join pg_catalog.pg_am m on m.oid = k.opcmethod
        where m.amname = 'btree' and k.opcdefault and (k.opcintype = y.oid or exists (
          select from pg_catalog.pg_cast f
          where f.castsource = y.oid and f.casttarget = k.opcintype and f.castmethod = 'b' and f.castcontext = 'i'
        ))
      ),
      'fitsTime', y.typcategory = 'S' or y.oid = 'pg_catalog.timestamptz'::pg_catalog.regtype or exists (
        select from pg_catalog.pg_cast f
        where f.castsource = 'pg_catalog.timestamptz'::pg_catalog.regtype and f.casttarget = y.oid and f.castcontext in ('a', 'i')
      )
    ))
    from reached join pg_catalog.pg_type y on y.oid = reached.oid join pg_catalog.pg_namespace n on n.oid = y.typnamespace
  ),
  'indexes', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', ic.relname,
      'usable', i.indisvalid and i.indimmediate and m.amname = 'btree',
      'predicate', pg_catalog.pg_get_expr(i.indpred, i.indrelid),
      'keys', (
        select pg_catalog.json_agg(pg_catalog.json_build_object(
          'column', a.attname,
          'operator', (
            select pg_catalog.format('operator(%I.%s)', n.nspname, p.oprname)
            from pg_catalog.pg_opclass k
            join pg_catalog.pg_amop o on o.amopfamily = k.opcfamily and o.amopstrategy = 3
              and o.amoplefttype = k.opcintype and o.amoprighttype = k.opcintype
            join pg_catalog.pg_operator p on p.oid = o.amopopr
            join pg_catalog.pg_namespace n on n.oid = p.oprnamespace
            where k.oid = i.indclass[g.n]
          ),
          'collation', (
            select pg_catalog.format('%I.%I', n.nspname, l.collname)
            from pg_catalog.pg_collation l join pg_catalog.pg_namespace n on n.oid = l.collnamespace
            where l.oid = i.indcollation[g.n] and l.collname <> 'default'
          ),
          'deterministic', coalesce((
            select l.collisdeterministic from pg_catalog.pg_collation l where l.oid = i.indcollation[g.n]
          ), true)
        ) order by g.n)
        from pg_catalog.generate_series(0, i.indnkeyatts - 1) g (n)
        left join attribute a on a.attnum = i.indkey[g.n]
      )
    ) order by ic.relname), '[]')
    from pg_catalog.pg_index i
    join pg_catalog.pg_class ic on ic.oid = i.indexrelid
    join pg_catalog.pg_am m on m.oid = ic.relam
    where i.indrelid = r.oid and i.indisunique
  )
)::text as catalog
from relation r`
